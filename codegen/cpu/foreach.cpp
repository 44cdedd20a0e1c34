#include "codegen/cpu/foreach.h"

#include "base/check.h"
#include "codegen/cpu/parallel.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

// By pointer: the stride in bytes from one element to the next.
c10::SmallVector<int64_t, 16> byte_strides_of(const Body& body) {
  c10::SmallVector<int64_t, 16> steps;
  for (const BodyLoad& load : body.loads)
    steps.push_back(load.pattern == AccessPattern::Broadcast ? 0 : static_cast<int64_t>(c10::elementSize(load.type)));
  for (const BodyStore& store : body.stores) steps.push_back(static_cast<int64_t>(c10::elementSize(store.type)));
  return steps;
}

}  // namespace

void run_foreach(const Body& body, const CpuKernel& kernel, const ForeachSets& sets) {
  HC_CHECK(body.of_sets, "sets of tensors for a kernel of one set");
  const auto steps = byte_strides_of(body);
  std::vector<int64_t> ends;
  int64_t total = 0;
  for (const int64_t numel : sets.numel) ends.push_back(total += numel);
  run_ranges(total, grain_of(body), [&](int64_t begin, int64_t end) {
    auto set = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    c10::SmallVector<char*, 16> at(steps.size());
    for (; begin < end; ++set) {
      const int64_t first = begin - (ends[set] - sets.numel[set]), count = std::min(end, ends[set]) - begin;
      for (size_t i = 0; i < steps.size(); ++i) at[i] = sets.memory[set * steps.size() + i] + first * steps[i];
      kernel.dense({.pointers = at.data(), .scalars = sets.scalars[set], .count = count});
      begin += count;
    }
  });
}

}  // namespace hindcast::codegen::cpu
