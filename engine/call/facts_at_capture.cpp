#include "engine/call/facts_at_capture.h"

#include <algorithm>
#include <exception>

namespace hindcast::engine {
namespace {

bool is_large(const at::Tensor& tensor) {
  constexpr size_t kLarge = size_t{1} << 17;  // glibc's initial mmap threshold
  return tensor.defined() && tensor.has_storage() && tensor.storage().nbytes() >= kLarge;
}

}  // namespace

FactsAtCapture::FactsAtCapture(const capture::Collected& from, const capture::CollectOptions& options, const capture::Resume& resume,
                               bool is_wanted)
    : collected(from.facts), among_large_tensors(std::any_of(from.tensors.begin(), from.tensors.end(), is_large)) {
  capture::append_resume_facts(resume, resumed, &resumed_origins);
  if (!is_wanted) return;
  try {
    collected_origins = capture::describe_facts(from, options, resume.call);
    can_record = true;
  } catch (const std::exception&) {
  }
}

}  // namespace hindcast::engine
