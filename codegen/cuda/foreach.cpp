#include "codegen/cuda/foreach.h"

#include "base/check.h"
#include "codegen/cuda/launch.h"
#include "codegen/cuda/source.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hindcast::codegen::cuda {
namespace {

// The sets of one launch: they have equal scalars and the same entry point.
class Batch {
 public:
  Batch(const Body& body, const CudaKernel& kernel, const ForeachSets& sets, bool is_aligned)
      : body_(body), kernel_(kernel), sets_(sets), is_aligned_(is_aligned), shape_(shape_of(body)), most_(sets_of_launch(body)) {}

  void add(size_t set) {
    const bool fits = members_.empty() || (sets_.scalars[members_[0]] == sets_.scalars[set] && std::ssize(members_) < most_);
    if (!fits) launch();
    members_.push_back(set);
  }

  void launch() {
    if (members_.empty()) return;
    Arguments arguments;
    TouchedMemory touched;
    for (uint32_t i = 0; i < body_.scalars; ++i) arguments.add_scalar(body_.compute, sets_.scalars[members_[0]][i]);
    arguments.add(static_cast<int64_t>(members_.size()));
    const auto for_each_place = [&](auto word) {
      for (int64_t i = 0; i < most_; ++i) arguments.add(i < std::ssize(members_) ? word(members_[static_cast<size_t>(i)]) : int64_t{0});
    };
    for_each_place([&](size_t set) { return sets_.numel[set]; });
    int64_t blocks = 0;
    for_each_place([&](size_t set) { return std::exchange(blocks, blocks + blocks_of_set(sets_.numel[set], is_aligned_, shape_)); });
    for (const size_t set : members_) add_pointers(set, arguments, touched);
    const size_t tensors = body_.loads.size() + body_.stores.size();
    for (size_t i = members_.size() * tensors; i < static_cast<size_t>(most_) * tensors; ++i) arguments.add_address(nullptr);
    const LaunchConfig config{is_aligned_ ? Entry::Sets : Entry::SetsEach, {static_cast<uint32_t>(blocks)}, {device::kThreads}};
    cuda::launch(kernel_, config, 0, arguments, sets_.device, touched, /*is_of_sets=*/true);
    members_.clear();
  }

 private:
  void add_pointers(size_t set, Arguments& arguments, TouchedMemory& touched) const {
    const size_t loads = body_.loads.size();
    const auto* const first = &sets_.memory[set * (loads + body_.stores.size())];
    for (size_t i = 0; i < loads; ++i) {
      const bool is_broadcast = body_.loads[i].pattern == AccessPattern::Broadcast;
      arguments.add_address(first[i]);
      touched.add(first[i], (is_broadcast ? 1 : sets_.numel[set]) * static_cast<int64_t>(c10::elementSize(body_.loads[i].type)), true);
    }
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      char* const memory = first[loads + i];
      arguments.add_address(memory);
      // A result that is written in place has been added as a load.
      if (std::find(first, first + loads, memory) == first + loads)
        touched.add(memory, sets_.numel[set] * static_cast<int64_t>(c10::elementSize(body_.stores[i].type)), false);
    }
  }

  const Body& body_;
  const CudaKernel& kernel_;
  const ForeachSets& sets_;
  const bool is_aligned_;
  const Shape shape_;
  const int64_t most_;
  std::vector<size_t> members_;
};

}  // namespace

void run_foreach(const Body& body, const CudaKernel& kernel, const ForeachSets& sets) {
  HC_CHECK(body.of_sets, "sets of tensors for a kernel of one set");
  const size_t loads = body.loads.size(), tensors = loads + body.stores.size();
  Batch aligned(body, kernel, sets, true), each(body, kernel, sets, false);
  for (size_t set = 0; set < sets.numel.size(); ++set) {
    bool all_aligned = true;
    for (size_t i = 0; i < tensors; ++i) {
      const bool is_broadcast = i < loads && body.loads[i].pattern == AccessPattern::Broadcast;
      all_aligned &= is_broadcast || is_aligned(sets.memory[set * tensors + i]);
    }
    (all_aligned ? aligned : each).add(set);
  }
  aligned.launch();
  each.launch();
}

}  // namespace hindcast::codegen::cuda
