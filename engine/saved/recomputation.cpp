#include "engine/saved/recomputation.h"

#include "base/format.h"
#include "hindcast/checkpoint.h"

#include <utility>

namespace hindcast::engine {
namespace {

constexpr const char* kAdvice =
    "The function must do the same when it runs again: what it reads besides its arguments (a counter, a switch, random numbers of a "
    "generator of its own) may not change before the backward";

// For graphs that outlive the rerun, or whose backward runs while the function is still running.
class KeptHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit KeptHooks(Recomputation& of) : of_(of) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    kept_ = Versioned(tensor);
    of_.save(tensor);
  }
  at::Tensor call_unpack_hook() override { return kept_.checked(); }

 private:
  Recomputation& of_;  // outlives every pack
  Versioned kept_;
};

}  // namespace

std::unique_ptr<torch::autograd::SavedVariableHooks> Recomputation::next() { return std::make_unique<KeptHooks>(*this); }

void Recomputation::save(const at::Tensor& tensor) {
  const std::size_t number = count_++;
  if (!is_done_) {
    try {
      compare(number, tensor);
    } catch (...) {
      error_ = std::current_exception();
    }
    if (number < expected_.needed) saved_.emplace_back(tensor);
    is_done_ = error_ || (expected_.ends_early && count_ == expected_.needed);
  }
  if (is_done_ && expected_.may_throw) throw Done();  // again if the function has caught it
}

void Recomputation::compare(std::size_t number, const at::Tensor& tensor) const {
  if (!expected_.is_compared) return;
  if (number >= expected_.facts.size()) {
    if (!expected_.is_forward_over) return;
    throw CheckpointError(base::format("hindcast::checkpoint: the recomputation saves more tensors than the forward, which saved {}. {}",
                                       expected_.facts.size(), kAdvice));
  }
  const SavedFacts& facts = *expected_.facts[number];
  if (const auto difference = facts.difference(tensor)) {
    throw CheckpointError(base::format("hindcast::checkpoint: saved tensor {} of {} is another one in the recomputation: {}. {}",
                                       number + 1, expected_.facts.size(), *difference, kAdvice));
  }
  facts.check_version(tensor);
}

std::vector<Versioned> Recomputation::result() && {
  if (error_) std::rethrow_exception(error_);
  const bool is_whole = !expected_.ends_early && expected_.is_compared && expected_.is_forward_over;
  if (count_ < (is_whole ? expected_.facts.size() : expected_.needed)) {
    throw CheckpointError(
        base::format("hindcast::checkpoint: the recomputation saves fewer tensors than the forward: seen {}, expected {}. {}", count_,
                     expected_.facts.size(), kAdvice));
  }
  return std::move(saved_);
}

}  // namespace hindcast::engine
