#include "codegen/cuda/kernel_call.h"

#include "codegen/cuda/launch.h"
#include "codegen/cuda/results.h"
#include "codegen/cuda/row_call.h"
#include "codegen/kernel/pointwise_frame.h"

#include <algorithm>

namespace hindcast::codegen::cuda {
namespace {

class KernelCall final : public PointwiseFrame {
 public:
  KernelCall(const Group& group, std::shared_ptr<const CudaKernel> kernel)
      : PointwiseFrame(group, result_maker()), kernel_(std::move(kernel)), shape_(shape_of(group.body)) {}
  size_t footprint() const override { return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()); }

 private:
  bool can_write_leaves(const Call& /*call*/) const override { return true; }

  void launch(Call& call) const override {
    if (is_empty(call)) return;
    if (!call.is_one_loop || !launch_dense(call)) launch_nest(call);
  }

  // False: what takes these addresses is not compiled yet.
  bool launch_dense(const Call& call) const {
    Arguments arguments;
    TouchedMemory touched;
    Pointers pointers;
    for (size_t i = 0; i < loads_; ++i) {
      if (!is_still(i)) pointers.push_back(memory_of(call.load(i)));
      arguments.add(memory_of(call.load(i)));
      touched.reads(call.load(i));
    }
    add_results(call, arguments, touched, pointers);
    add_leaves(arguments, group_, call.leaves);
    touched.leaves(call.leaves);
    add_scalars(call, arguments);
    arguments.add(call.numel);
    const bool all_aligned = are_aligned(group_, call.leaves) && std::all_of(pointers.begin(), pointers.end(), is_aligned);
    Schedule schedule = schedule_dense(call.numel, all_aligned, shape_, machine()->limits());
    if (!kernel_->has_or_asks_for(schedule.entry)) {
      if (!all_aligned) return false;
      schedule = schedule_dense_few(call.numel, shape_);
    }
    cuda::launch(*kernel_, schedule, 0, arguments, group_.device, touched);
    return true;
  }

  void add_results(const Call& call, Arguments& arguments, TouchedMemory& touched, Pointers& pointers) const {
    for (const at::Tensor& result : call.results) {
      pointers.push_back(memory_of(result));
      touched.writes(result);
    }
    for (const Concats::Part& part : call.concats.parts()) pointers.push_back(part.memory);
    touched.writes(call.concats);
    for (auto i = pointers.end() - static_cast<std::ptrdiff_t>(group_.body.stores.size()); i != pointers.end(); ++i) arguments.add(*i);
  }

  void add_scalars(const Call& call, Arguments& arguments) const {
    for (const double scalar : call.scalars) arguments.add_scalar(group_.body.compute, scalar);
  }

  void launch_nest(const Call& call) const {
    const Nest nest = nest_of(call);
    Arguments arguments;
    TouchedMemory touched;
    for (const at::Tensor& load : nest.loads) touched.reads(load);
    for (const at::Tensor& result : call.results) touched.writes(result);
    touched.writes(call.concats);
    for (char* const pointer : nest.pointers) arguments.add(pointer);
    if (reads_padded_) arguments.lead_outside();
    add_leaves(arguments, group_, call.leaves);
    touched.leaves(call.leaves);
    add_scalars(call, arguments);
    const auto turned = turned_loads(nest);
    if (turned.loop != nullptr && kernel_->has_or_asks_for(Entry::Tiles)) return launch_tiles(nest, turned, arguments, touched);
    const Schedule schedule = call.is_one_loop || turned.loop != nullptr ? schedule_nest_any(call.numel, shape_) : schedule_of(call, nest);
    const int64_t length = schedule.entry == Entry::Nest ? shape_.vector_length : 1;
    arguments.add(call.numel / length);
    add_loops(nest, length, arguments);
    cuda::launch(*kernel_, schedule, 0, arguments, group_.device, touched);
  }

  Schedule schedule_of(const Call& call, const Nest& nest) const {
    const int64_t inner = nest.loops.back().size;
    const NestProblem problem{
        .outer = call.numel / inner, .inner = inner, .goes_by_vectors = goes_by_vectors(nest) && are_aligned(group_, call.leaves)};
    const Schedule schedule = schedule_nest(problem, shape_, machine()->limits());
    return kernel_->has_or_asks_for(schedule.entry) ? schedule : schedule_nest_any(call.numel, shape_);
  }

  // As the struct Nest has them, behind the number of pieces.
  void add_loops(const Nest& nest, int64_t length, Arguments& arguments) const {
    const auto& loops = nest.loops;
    const size_t count = loops.size(), inner = count - 1;
    const auto in_pieces = [&](size_t loop, int64_t number) { return loop == inner ? number / length : number; };
    arguments.add(static_cast<int64_t>(count));
    arguments.add(loops[0].spans.empty() ? int64_t{0} : int64_t{1});
    for (size_t i = 0; i < device::kMostLoops; ++i) arguments.add(device::divider_of(i < count ? in_pieces(i, loops[i].size) : 1));
    arguments.add_table(count, nest.pointers.size(), device::kMostLoops,
                        [&](size_t loop, size_t tensor) { return loops[loop].steps[tensor] * (loop == inner ? length : 1); });
    const size_t loads = std::max<size_t>(loads_, 1);
    const auto span = [&](size_t loop, size_t load) {
      return loops[loop].spans.empty() || load >= loads_ ? codegen::Span{0, loops[loop].size} : loops[loop].spans[load];
    };
    arguments.add_table(count, loads, device::kMostLoops, [&](size_t loop, size_t load) { return span(loop, load).begin; });
    arguments.add_table(count, loads, device::kMostLoops, [&](size_t loop, size_t load) { return span(loop, load).end; });
  }

  // Along the innermost loop each tensor goes as the text has it, and begins at an aligned address in all others.
  bool goes_by_vectors(const Nest& nest) const {
    if (reads_padded_) return false;
    for (size_t i = 0; i < nest.pointers.size(); ++i) {
      const int64_t width = element_sizes_[i], vector = std::min<int64_t>(width * shape_.vector_length, kAccess);
      if (nest.loops.back().steps[i] != (is_still(i) ? 0 : width)) return false;
      if (is_still(i)) continue;
      if (reinterpret_cast<uintptr_t>(nest.pointers[i]) % static_cast<uintptr_t>(vector) != 0) return false;
      for (size_t loop = 0; loop + 1 < nest.loops.size(); ++loop) {
        if (nest.loops[loop].steps[i] % vector != 0) return false;
      }
    }
    return true;
  }

  struct Turned {
    const Loop* loop = nullptr;  // along which they lie
    uint64_t loads = 0;          // a bit each
    uint32_t bytes = 0;          // of shared memory
    std::vector<int64_t> places;
  };
  // Loads that lie along one other loop than the innermost, along which the results lie. Small ones are not worth a tile's barrier.
  Turned turned_loads(const Nest& nest) const {
    Turned turned;
    const Loop& inner = nest.loops.back();
    if (reads_padded_ || inner.size < device::kTile || nest.loops.size() < 2) return turned;
    turned.places.resize(loads_);
    for (size_t i = 0; i < loads_; ++i) {
      if (is_still(i) ? inner.steps[i] == 0 : inner.steps[i] == element_sizes_[i]) continue;
      if (is_still(i)) return {};
      const Loop* along = nullptr;
      for (const Loop& loop : nest.loops) {
        if (loop.steps[i] == element_sizes_[i] && loop.size >= device::kTile) along = &loop;
      }
      if (along == nullptr || (turned.loop != nullptr && turned.loop != along)) return {};
      turned.loop = along;
      turned.loads |= uint64_t{1} << i;
      turned.places[i] = turned.bytes;
      constexpr uint32_t kElements = device::kTile * (device::kTile + 1);
      turned.bytes += (kElements * static_cast<uint32_t>(element_sizes_[i]) + kAccess - 1) / kAccess * kAccess;
    }
    if (turned.bytes > machine()->limits().shared_bytes) return {};
    for (size_t i = loads_; i < nest.pointers.size(); ++i) {
      if (inner.steps[i] != element_sizes_[i]) return {};
    }
    return turned;
  }

  void launch_tiles(const Nest& nest, const Turned& turned, Arguments& arguments, const TouchedMemory& touched) const {
    const Loop& inner = nest.loops.back();
    std::vector<const Loop*> around;
    int64_t blocks = 1;
    for (const Loop& loop : nest.loops) {
      if (&loop == &inner || &loop == turned.loop) continue;
      around.push_back(&loop);
      blocks *= loop.size;
    }
    const auto tiles = [](int64_t size) { return (size + device::kTile - 1) / device::kTile; };
    blocks *= tiles(inner.size) * tiles(turned.loop->size);
    arguments.add(static_cast<int64_t>(turned.loads));
    arguments.add(turned.loop->size);
    arguments.add(inner.size);
    arguments.add(static_cast<int64_t>(around.size()));
    arguments.add(device::divider_of(tiles(turned.loop->size)));
    arguments.add(device::divider_of(tiles(inner.size)));
    for (size_t i = 0; i < device::kMostLoops; ++i) arguments.add(device::divider_of(i < around.size() ? around[i]->size : 1));
    const size_t tensors = nest.pointers.size();
    for (size_t i = 0; i < tensors; ++i) arguments.add(turned.loop->steps[i]);
    for (size_t i = 0; i < tensors; ++i) arguments.add(inner.steps[i]);
    arguments.add_table(around.size(), tensors, device::kMostLoops, [&](size_t loop, size_t i) { return around[loop]->steps[i]; });
    for (size_t i = 0; i < std::max<size_t>(loads_, 1); ++i) arguments.add(i < loads_ ? turned.places[i] : int64_t{0});
    const Schedule schedule{Entry::Tiles, {static_cast<uint32_t>(blocks), 1, 1}, {device::kTile, device::kTileRows, 1}};
    cuda::launch(*kernel_, schedule, turned.bytes, arguments, group_.device, touched);
  }

  const std::shared_ptr<const CudaKernel> kernel_;
  const Shape shape_;
};

}  // namespace

std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CudaKernel> kernel) {
  if (group.body.by_rows) return make_row_call(group, std::move(kernel));
  return std::make_unique<KernelCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen::cuda
