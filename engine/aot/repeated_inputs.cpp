#include "engine/aot/repeated_inputs.h"

#include <algorithm>
#include <bitset>
#include <iterator>

namespace hindcast::engine {

std::vector<uint32_t> find_repeated(const std::vector<at::Tensor>& inputs) {
  constexpr int kBits = 12;  // a module may have hundreds of parameters
  std::bitset<size_t{1} << kBits> seen;
  std::vector<uint32_t> firsts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const auto address = reinterpret_cast<uint64_t>(inputs[i].unsafeGetTensorImpl());
    const size_t bit = (address * 0x9e3779b97f4a7c15) >> (64 - kBits);
    if (!seen.test(bit)) {
      seen.set(bit);
      continue;
    }
    const auto here = inputs.begin() + static_cast<std::ptrdiff_t>(i);
    const auto first = std::find_if(inputs.begin(), here, [&](const at::Tensor& other) { return other.is_same(inputs[i]); });
    if (first == here) continue;
    for (size_t known = firsts.size(); known < inputs.size(); ++known) firsts.push_back(static_cast<uint32_t>(known));
    firsts[i] = static_cast<uint32_t>(first - inputs.begin());
  }
  return firsts;
}

}  // namespace hindcast::engine
