#include "codegen/cuda/kernel_call.h"

#include "codegen/cuda/launch.h"
#include "codegen/cuda/prepared_calls.h"
#include "codegen/cuda/results.h"
#include "codegen/cuda/row_call.h"
#include "codegen/kernel/pointwise_frame.h"

#include <algorithm>

namespace hindcast::codegen::cuda {
namespace {

class KernelCall final : public PointwiseFrame {
 public:
  KernelCall(const Group& group, std::shared_ptr<const CudaKernel> kernel)
      : PointwiseFrame(group, result_maker()), kernel_(std::move(kernel)), shape_(shape_of(group.body)) {
    for (size_t i = 0; i < element_sizes_.size(); ++i)
      accesses_.push_back(is_broadcast(i) || reads_padded_ ? 1 : std::min<int64_t>(element_sizes_[i] * shape_.vector_length, kAccess));
  }
  size_t footprint() const override {
    return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()) +
           PreparedCalls::footprint(element_sizes_.size(), 1);
  }

 private:
  bool can_write_leaves(const Call& /*call*/) const override { return true; }

  void launch(Call& call) const override {
    if (call.is_empty()) return;
    if (!call.is_one_loop || !launch_dense(call)) launch_nest(call);
  }

  // Returns false if the entry point for these addresses is not compiled yet. The argument, little more than addresses, is not cached.
  bool launch_dense(const Call& call) const {
    const Addresses addresses = addresses_of(call);
    Arguments arguments;
    bool all_aligned = true;
    for (size_t i = 0; i < addresses.size(); ++i) {
      arguments.add_address(addresses[i]);
      all_aligned = all_aligned && (is_broadcast(i) || is_aligned(addresses[i]));
    }
    for (const double scalar : call.scalars) arguments.add_scalar(group_.body.compute, scalar);
    arguments.add_part(device::DenseLaunch{call.numel});
    LaunchConfig config = dense_config(call.numel, all_aligned, shape_, machine()->limits());
    if (!kernel_->has_or_asks_for(config.entry)) {
      if (!all_aligned) return false;
      config = dense_few_config(call.numel, shape_);
    }
    cuda::launch(*kernel_, config, 0, arguments, group_.device, touched_by(call));
    return true;
  }

  // The addresses of loads, stores, leaves.
  Addresses addresses_of(const Call& call) const {
    Addresses addresses;
    for (size_t i = 0; i < loads_; ++i) addresses.push_back(memory_of(call.load(i)));
    for (const at::Tensor& result : call.results) addresses.push_back(memory_of(result));
    for (const Concats::Part& part : call.concats.parts()) addresses.push_back(part.memory);
    add_leaves(addresses, group_, call.leaves);
    return addresses;
  }

  // `nest`: has the loads, some of which may be copies; nullptr if there are no copies.
  TouchedMemory touched_by(const Call& call, const Nest* nest = nullptr) const {
    TouchedMemory touched;
    for (size_t i = 0; i < loads_; ++i) touched.reads(nest == nullptr ? call.load(i) : nest->loads[i]);
    for (const at::Tensor& result : call.results) touched.writes(result);
    touched.writes(call.concats);
    touched.leaves(call.leaves);
    return touched;
  }

  void launch_nest(const Call& call) const {
    Addresses addresses = addresses_of(call);
    const LayoutKey key = key_of(call, addresses);
    bool comes_again = false;
    if (const auto prepared = prepared_.find(key, comes_again)) [[likely]]
      return launch(prepared->launches[0], addresses, call, touched_by(call));
    const Nest nest = nest_of(call);
    for (size_t i = 0; i < loads_; ++i) addresses[i] = memory_of(nest.loads[i]);
    PreparedCall prepared = prepare(call, nest, addresses);
    launch(prepared.launches[0], addresses, call, touched_by(call, &nest));
    if (comes_again && prepared.lasts) prepared_.keep(key, std::move(prepared));
  }

  void launch(const PreparedLaunch& prepared, const Addresses& addresses, const Call& call, const TouchedMemory& touched) const {
    cuda::launch(*kernel_, prepared.config, prepared.shared_bytes, prepared.argument.with(addresses, group_.body.compute, call.scalars),
                 group_.device, touched);
  }

  LayoutKey key_of(const Call& call, const Addresses& addresses) const {
    LayoutKey key;
    key.add(call.domain);
    for (size_t i = 0; i < loads_; ++i) key.add_load(call.load(i), group_.accesses[i], call.env);
    for (const Concats::Part& part : call.concats.parts()) key.add(part.steps);
    key.add_alignment(addresses, accesses_);
    return key;
  }

  PreparedCall prepare(const Call& call, const Nest& nest, const Addresses& addresses) const {
    PreparedCall prepared;
    PreparedLaunch& launch = prepared.launches.emplace_back();
    for (size_t i = 0; i < loads_; ++i) prepared.lasts = prepared.lasts && nest.loads[i].is_same(call.load(i));
    for (size_t i = 0; i < addresses.size(); ++i) launch.argument.add_address(i, i < loads_ ? nest.pointers[i] - addresses[i] : 0);
    if (reads_padded_) launch.argument.lead_outside();
    launch.argument.leave_scalars(call.scalars.size());
    const Transposed transposed = transposed_loads(nest);
    if (transposed.loop != nullptr && kernel_->has_or_asks_for(Entry::Tiles)) {
      add_tiles(nest, transposed, launch);
      return prepared;
    }
    // Whether a better entry point was requested, so that this launch must not be kept.
    const bool waits = transposed.loop != nullptr || call.is_one_loop;
    const NestProblem problem = problem_of(call, nest);
    if (!waits) launch.config = nest_config(problem, shape_, machine()->limits());
    if (waits || !kernel_->has_or_asks_for(launch.config.entry)) {
      launch.config = nest_any_config(call.numel, shape_);
      prepared.lasts = false;
    }
    const bool by_vectors = launch.config.entry == Entry::Nest;
    const int64_t length = by_vectors ? shape_.vector_length : 1;
    const int64_t items = by_vectors ? nest_items(problem, shape_, machine()->limits()) : 1;
    add_loops(nest, call.numel, length, items, launch.argument);
    return prepared;
  }

  NestProblem problem_of(const Call& call, const Nest& nest) const {
    const int64_t inner = nest.loops.back().size, next = nest.loops.size() < 2 ? 1 : nest.loops[nest.loops.size() - 2].size;
    return {.outer = call.numel / inner,
            .inner = inner,
            .goes_by_vectors = goes_by_vectors(nest) && are_aligned(group_, call.leaves),
            .next = next};
  }

  // A piece is `length` elements of the innermost loop; a thread has `items` pieces, which are adjacent in the loop around it.
  void add_loops(const Nest& nest, int64_t numel, int64_t length, int64_t items, ArgumentPattern& argument) const {
    const auto& loops = nest.loops;
    const size_t count = loops.size(), inner = count - 1;
    const auto together = [&](size_t loop) { return loop == inner ? length : loop + 1 == inner ? items : 1; };
    device::NestLaunch launch{.pieces = numel / length / items,
                              .loops = static_cast<int64_t>(count),
                              .is_padded = loops[0].spans.empty() ? 0 : 1,
                              .items = items,
                              .sizes = {}};
    for (size_t i = 0; i < device::kMostLoops; ++i) launch.sizes[i] = device::divider_of(i < count ? loops[i].size / together(i) : 1);
    argument.add_part(launch);
    for (size_t i = 0; i < nest.pointers.size(); ++i) {
      device::NestTensor tensor{.item_stride = count < 2 ? 0 : loops[inner - 1].steps[i], .strides = {}};
      for (size_t loop = 0; loop < count; ++loop) tensor.strides[loop] = loops[loop].steps[i] * together(loop);
      argument.add_part(tensor);
    }
    for (size_t i = 0; i < std::max<size_t>(loads_, 1); ++i) {
      device::NestSpans spans = {};
      for (size_t loop = 0; loop < count; ++loop) {
        const bool is_whole = loops[loop].spans.empty() || i >= loads_;
        spans.first[loop] = is_whole ? 0 : loops[loop].spans[i].begin;
        spans.end[loop] = is_whole ? loops[loop].size : loops[loop].spans[i].end;
      }
      argument.add_part(spans);
    }
  }

  // Whether each tensor is dense or broadcast along the innermost loop, as in the text, and begins at an aligned address in each iteration
  // of the other loops.
  bool goes_by_vectors(const Nest& nest) const {
    if (reads_padded_) return false;
    for (size_t i = 0; i < nest.pointers.size(); ++i) {
      if (nest.loops.back().steps[i] != (is_broadcast(i) ? 0 : element_sizes_[i])) return false;
      if (reinterpret_cast<uintptr_t>(nest.pointers[i]) % static_cast<uintptr_t>(accesses_[i]) != 0) return false;
      for (size_t loop = 0; loop + 1 < nest.loops.size(); ++loop) {
        if (nest.loops[loop].steps[i] % accesses_[i] != 0) return false;
      }
    }
    return true;
  }

  struct Transposed {
    const Loop* loop = nullptr;  // the loop along which they are contiguous
    uint64_t loads = 0;          // bit mask of the loads
    uint32_t bytes = 0;          // of shared memory
    std::vector<int64_t> places;
  };
  // Transposed loads: contiguous along another loop than the innermost, along which the results are contiguous. Small ones are not worth a
  // tile's barrier.
  Transposed transposed_loads(const Nest& nest) const {
    Transposed transposed;
    const Loop& inner = nest.loops.back();
    if (reads_padded_ || inner.size < device::kTile || nest.loops.size() < 2) return transposed;
    transposed.places.resize(loads_);
    for (size_t i = 0; i < loads_; ++i) {
      if (is_broadcast(i) ? inner.steps[i] == 0 : inner.steps[i] == element_sizes_[i]) continue;
      if (is_broadcast(i)) return {};
      const Loop* along = nullptr;
      for (const Loop& loop : nest.loops) {
        if (loop.steps[i] == element_sizes_[i] && loop.size >= device::kTile) along = &loop;
      }
      if (along == nullptr || (transposed.loop != nullptr && transposed.loop != along)) return {};
      transposed.loop = along;
      transposed.loads |= uint64_t{1} << i;
      transposed.places[i] = transposed.bytes;
      constexpr uint32_t kElements = device::kTile * (device::kTile + 1);
      transposed.bytes += (kElements * static_cast<uint32_t>(element_sizes_[i]) + kAccess - 1) / kAccess * kAccess;
    }
    if (transposed.bytes > machine()->limits().shared_bytes) return {};
    for (size_t i = loads_; i < nest.pointers.size(); ++i) {
      if (inner.steps[i] != element_sizes_[i]) return {};
    }
    return transposed;
  }

  void add_tiles(const Nest& nest, const Transposed& transposed, PreparedLaunch& launch) const {
    const Loop& inner = nest.loops.back();
    std::vector<const Loop*> around;
    int64_t blocks = 1;
    for (const Loop& loop : nest.loops) {
      if (&loop == &inner || &loop == transposed.loop) continue;
      around.push_back(&loop);
      blocks *= loop.size;
    }
    const auto tiles = [](int64_t size) { return (size + device::kTile - 1) / device::kTile; };
    blocks *= tiles(inner.size) * tiles(transposed.loop->size);
    device::TilesLaunch tiled{.transposed = transposed.loads,
                              .rows = transposed.loop->size,
                              .columns = inner.size,
                              .loops = static_cast<int64_t>(around.size()),
                              .row_tiles = device::divider_of(tiles(transposed.loop->size)),
                              .column_tiles = device::divider_of(tiles(inner.size)),
                              .sizes = {}};
    for (size_t i = 0; i < device::kMostLoops; ++i) tiled.sizes[i] = device::divider_of(i < around.size() ? around[i]->size : 1);
    launch.argument.add_part(tiled);
    for (size_t i = 0; i < nest.pointers.size(); ++i) {
      device::TilesTensor tensor{.row_stride = transposed.loop->steps[i],
                                 .column_stride = inner.steps[i],
                                 .strides = {},
                                 .in_shared = i < loads_ ? transposed.places[i] : 0};
      for (size_t loop = 0; loop < around.size(); ++loop) tensor.strides[loop] = around[loop]->steps[i];
      launch.argument.add_part(tensor);
    }
    launch.config = {Entry::Tiles, {static_cast<uint32_t>(blocks), 1, 1}, {device::kTile, device::kTileRows, 1}};
    launch.shared_bytes = transposed.bytes;
  }

  const std::shared_ptr<const CudaKernel> kernel_;
  const Shape shape_;
  std::vector<int64_t> accesses_;  // by tensor: bytes per access in Entry::Nest; 1 if no alignment is needed
  mutable PreparedCalls prepared_;
};

}  // namespace

std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CudaKernel> kernel) {
  if (group.body.by_rows) return make_row_call(group, std::move(kernel));
  return std::make_unique<KernelCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen::cuda
