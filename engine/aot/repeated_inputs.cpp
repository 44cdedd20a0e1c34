#include "engine/aot/repeated_inputs.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <unordered_map>

namespace hindcast::engine {
namespace {

bool has_one_twice(const std::vector<at::Tensor>& inputs) {
  c10::SmallVector<const void*, 64> all;
  for (const at::Tensor& input : inputs) {
    if (input.defined()) all.push_back(input.unsafeGetTensorImpl());
  }
  constexpr size_t kFew = 8;
  if (all.size() > kFew) {
    std::sort(all.begin(), all.end());
    return std::adjacent_find(all.begin(), all.end()) != all.end();
  }
  for (size_t i = 1; i < all.size(); ++i) {
    if (std::find(all.begin(), all.begin() + i, all[i]) != all.begin() + i) return true;
  }
  return false;
}

}  // namespace

std::vector<uint32_t> find_repeated(const std::vector<at::Tensor>& inputs) {
  std::vector<uint32_t> firsts;
  if (!has_one_twice(inputs)) return firsts;
  std::unordered_map<const void*, uint32_t> known;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    firsts.push_back(inputs[i].defined() ? known.emplace(inputs[i].unsafeGetTensorImpl(), i).first->second : i);
  }
  return firsts;
}

}  // namespace hindcast::engine
