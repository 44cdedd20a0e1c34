#include "codegen/cuda/row_call.h"

#include "codegen/cuda/launch.h"
#include "codegen/cuda/prepared_calls.h"
#include "codegen/cuda/results.h"
#include "codegen/cuda/row_source.h"
#include "codegen/kernel/row_frame.h"

#include <algorithm>

namespace hindcast::codegen::cuda {
namespace {

int64_t whole_accesses(int64_t bytes) { return (bytes + kAccess - 1) / kAccess * kAccess; }

// By tensor: bytes per access; 1 if no alignment is needed, since elements are accessed one by one.
std::vector<int64_t> accesses_of(const Body& body, const Shape& shape) {
  std::vector<int64_t> accesses;
  const auto add = [&](bool goes_by_vectors, at::ScalarType type) {
    const auto vector = static_cast<int64_t>(c10::elementSize(type)) * shape.vector_length;
    accesses.push_back(goes_by_vectors ? std::min(vector, kAccess) : 1);
  };
  for (const BodyLoad& load : body.loads) add(load.pattern == AccessPattern::Dense, load.type);
  for (const BodyStore& store : body.stores) add(store.extent == Extent::Element, store.type);
  return accesses;
}

class RowCall final : public RowFrame {
 public:
  RowCall(const Group& group, std::shared_ptr<const CudaKernel> kernel)
      : RowFrame(group, result_maker()),
        kernel_(std::move(kernel)),
        shape_(shape_of(group.body)),
        passes_(passes_over_row(group.body)),
        numbers_(numbers_of_split_row(group.body)),
        widths_kept_(widths_kept(group.body)),
        has_numbers_(std::any_of(group.body.stores.begin(), group.body.stores.end(),
                                 [](const BodyStore& store) { return store.extent == Extent::Row; })),
        problem_{.needs_whole_rows = needs_whole_rows(group.body),
                 .has_results_over_rows = has_results_over_rows(group.body),
                 .may_be_split = may_split_rows(group.body),
                 .goes_by_segments = goes_by_segments(group.body),
                 .sums = std::count_if(group.body.stores.begin(), group.body.stores.end(),
                                       [](const BodyStore& store) { return store.extent == Extent::Columns; })},
        accesses_(accesses_of(group.body, shape_)) {}
  size_t footprint() const override {
    return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()) +
           PreparedCalls::footprint(loads_ + group_.body.stores.size(), passes_ + 2);
  }

 private:
  // Threads also read elements of other threads (and ignore them), which may have been overwritten already.
  bool may_take_input(const Call& /*call*/, size_t /*store*/) const override { return false; }
  bool can_write_leaves(const Call& /*call*/) const override { return true; }
  bool can_add_to_leaf(size_t store) const override { return group_.body.stores[store].extent != Extent::Element; }

  // Indices of addresses: loads, stores, leaves, then scratch memory.
  size_t place_of_store(size_t store) const { return loads_ + store; }
  size_t place_of_partials(const Addresses& addresses) const { return addresses.size(); }
  size_t place_of_numbers(const Addresses& addresses) const { return addresses.size() + 1; }

  void launch(Call& call) const override {
    Addresses addresses;
    for (size_t i = 0; i < loads_; ++i) addresses.push_back(memory_of(call.load(i)));
    for (const at::Tensor& result : call.results) addresses.push_back(memory_of(result));
    add_leaves(addresses, group_, call.leaves);
    const LayoutKey key = key_of(call, addresses);
    bool comes_again = false;
    if (const auto prepared = prepared_.find(key, comes_again)) [[likely]]
      return launch(*prepared, addresses, call, nullptr);
    Rows rows;
    lay_out_rows(call, rows);
    if (rows.row_count == 0) return clear_results(call);
    for (size_t i = 0; i < loads_; ++i) addresses[i] = rows.pointers[i];
    PreparedCall prepared = prepare(call, rows, addresses);
    launch(prepared, addresses, call, &rows);
    if (comes_again && prepared.lasts) prepared_.keep(key, std::move(prepared));
  }

  LayoutKey key_of(const Call& call, const Addresses& addresses) const {
    LayoutKey key;
    key.add(call.domain);
    for (size_t i = 0; i < loads_; ++i) key.add_load(call.load(i), group_.accesses[i], call.env);
    for (const at::Tensor& result : call.results) key.add(result.defined() ? result.numel() : -1);
    key.add(static_cast<int64_t>(call.added));
    key.add_alignment(addresses, accesses_);
    return key;
  }

  // `rows`: has the loads, some of which may be copies; nullptr if there are no copies.
  void launch(const PreparedCall& prepared, Addresses& addresses, const Call& call, const Rows* rows) const {
    const auto make = [&](int64_t bytes) {
      return bytes == 0 ? at::Tensor() : result_maker().make_new({bytes}, {1}, at::kByte, group_.device);
    };
    const at::Tensor partials = make(prepared.partial_bytes), numbers = make(prepared.number_bytes);
    addresses.push_back(memory_of(partials));
    addresses.push_back(memory_of(numbers));
    const size_t passes = prepared.launches.size() - (partials.defined() ? 1 : 0);
    for (size_t i = 0; i < prepared.launches.size(); ++i) {
      const PreparedLaunch& one = prepared.launches[i];
      const TouchedMemory touched = i < passes ? touched_by_rows(call, rows, partials, numbers, i) : touched_by_merge(call, partials);
      cuda::launch(*kernel_, one.config, one.shared_bytes, one.argument.with(addresses, group_.body.compute, call.scalars), group_.device,
                   touched);
    }
  }

  TouchedMemory touched_by_rows(const Call& call, const Rows* rows, const at::Tensor& partials, const at::Tensor& numbers,
                                size_t pass) const {
    TouchedMemory touched;
    for (size_t i = 0; i < loads_; ++i) touched.reads(rows == nullptr ? call.load(i) : rows->tensors[i]);
    for (size_t i = 0; i < call.results.size(); ++i) touched.result(call.results[i], call.is_added(i));
    touched.writes(partials);
    touched.leaves(call.leaves);
    pass == 0 ? touched.writes(numbers) : touched.reads(numbers);
    return touched;
  }

  TouchedMemory touched_by_merge(const Call& call, const at::Tensor& partials) const {
    TouchedMemory touched;
    touched.reads(partials);
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (group_.body.stores[i].is_over_rows()) touched.result(call.results[i], call.is_added(i));
    }
    return touched;
  }

  // Results for no rows: these are sums, since other reductions were rejected.
  void clear_results(const Call& call) const {
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i].defined() && !call.is_added(i)) call.results[i].zero_();
    }
  }

  PreparedCall prepare(const Call& call, const Rows& rows, const Addresses& addresses) const {
    PreparedCall prepared;
    for (size_t i = 0; i < loads_; ++i) prepared.lasts = prepared.lasts && rows.tensors[i].is_same(call.load(i));
    RowProblem problem = problem_;
    problem.rows = rows.row_count;
    problem.segments = rows.segments();
    problem.columns = rows.segment_length();
    problem.is_aligned = is_aligned(call, rows);
    problem.kept_bytes = 0;
    for (const int64_t width : widths_kept_) problem.kept_bytes += whole_accesses(rows.row_length() * width);
    problem.registers = kernel_->registers();
    problem.sum_bytes = whole_accesses(rows.row_length() * width_of_number());
    RowLaunchConfig config = row_config(problem, shape_, machine()->limits());
    if (!kernel_->has_or_asks_for(config.rows.entry)) {
      config = any_row_config(problem, shape_, machine()->limits());
      problem.is_aligned = config.rows.entry == Entry::Segments;
      prepared.lasts = false;
    }
    if (config.rows.entry == Entry::RowsEach) problem.is_aligned = false;  // short rows go element by element even if aligned
    const Partials partials = make_partials(rows, config.slices);
    prepared.partial_bytes = partials.all_bytes;
    prepared.number_bytes = problem.rows * config.splits * static_cast<int64_t>(numbers_) * device::kNumberBytes;
    const size_t passes = config.splits == 0 ? 1 : passes_ + (has_numbers_ ? 1 : 0);
    prepared.launches.reserve(passes + (partials.all_bytes != 0 ? 1 : 0));
    for (size_t pass = 0; pass < passes; ++pass) prepare_rows(call, rows, problem, config, partials, addresses, pass, prepared);
    if (partials.all_bytes != 0) prepare_merge(call, rows, config, partials, addresses, prepared);
    return prepared;
  }

  int64_t width_of_number() const { return static_cast<int64_t>(c10::elementSize(group_.body.compute)); }

  // The layout of the scratch memory for partial results over rows, by slice.
  struct Partials {
    c10::SmallVector<int64_t, 16> offsets, bytes;  // by store; `bytes` of one slice; 0 for stores that are not over rows
    int64_t all_bytes = 0;
    bool are_of(size_t store) const { return bytes[store] != 0; }
  };
  Partials make_partials(const Rows& rows, int64_t slices) const {
    Partials partials;
    for (size_t i = 0; i < rows.counts.size(); ++i) {
      partials.offsets.push_back(partials.all_bytes);
      partials.bytes.push_back(group_.body.stores[i].is_over_rows() ? whole_accesses(rows.counts[i] * width_of_number()) : 0);
      partials.all_bytes += partials.bytes.back() * slices;
    }
    return partials;
  }

  void add_stores(const Partials& partials, const Addresses& addresses, ArgumentPattern& argument) const {
    for (size_t i = 0; i < partials.bytes.size(); ++i) {
      if (partials.all_bytes != 0 && partials.are_of(i)) {
        argument.add_address(place_of_partials(addresses), partials.offsets[i]);
      } else {
        argument.add_address(place_of_store(i));
      }
    }
  }

  void prepare_rows(const Call& call, const Rows& rows, const RowProblem& problem, const RowLaunchConfig& config, const Partials& partials,
                    const Addresses& addresses, size_t pass, PreparedCall& prepared) const {
    PreparedLaunch& launch = prepared.launches.emplace_back();
    launch.config = config.rows;
    launch.shared_bytes = static_cast<uint32_t>(config.shared_bytes);
    ArgumentPattern& argument = launch.argument;
    const size_t tensors = rows.tensors.size(), results = call.results.size();
    argument.add_addresses(0, loads_);
    add_stores(partials, addresses, argument);
    argument.add_addresses(tensors, addresses.size());
    argument.leave_scalars(call.scalars.size());
    const int64_t length = problem.is_aligned ? shape_.vector_length : 1;
    const int64_t pieces = problem.segments * problem.columns / length, splits = std::max<int64_t>(config.splits, 1);
    device::RowsLaunch of_rows{.rows = problem.rows,
                               .segments = problem.segments,
                               .columns = problem.columns,
                               .pieces_of_segment = device::divider_of(std::max<int64_t>(problem.columns / length, 1)),
                               .loops = static_cast<int64_t>(rows.rows.size()),
                               .sizes = {},
                               .is_whole = config.slices == 0 ? 1 : 0,
                               .pass = static_cast<int64_t>(pass),
                               .splits = splits,
                               .pieces_of_split = (pieces + splits - 1) / splits,
                               .kept_bytes = problem.kept_bytes,
                               .kept_sums = config.kept_sums,
                               .adds = call.added};
    for (size_t i = 0; i < device::kMostLoops; ++i) of_rows.sizes[i] = device::divider_of(i < rows.rows.size() ? rows.rows[i].size : 1);
    argument.add_part(of_rows);
    for (size_t i = 0; i < tensors; ++i) {
      device::RowsTensor tensor{.row_strides = {}, .segment_stride = problem.segments == 1 ? 0 : rows.columns[0].steps[i]};
      for (size_t loop = 0; loop < rows.rows.size(); ++loop) tensor.row_strides[loop] = rows.rows[loop].steps[i];
      argument.add_part(tensor);
    }
    for (size_t i = 0; i < std::max<size_t>(results, 1); ++i) {
      argument.add_part(i < results ? device::RowsStore{.partial_bytes = partials.bytes[i], .count = rows.counts[i]} : device::RowsStore{});
    }
    argument.add_address(place_of_numbers(addresses));
  }

  void prepare_merge(const Call& call, const Rows& rows, const RowLaunchConfig& config, const Partials& partials,
                     const Addresses& addresses, PreparedCall& prepared) const {
    PreparedLaunch& launch = prepared.launches.emplace_back();
    ArgumentPattern& argument = launch.argument;
    int64_t most = 0, stores = 0;
    for (size_t i = 0; i < partials.bytes.size(); ++i) {
      if (!group_.body.stores[i].is_over_rows()) continue;
      most = std::max(most, rows.counts[i]);
      ++stores;
    }
    launch.config = merge_config(most, stores);
    // Only addresses of known memory are added: a captured launch with any other address could not be moved.
    for (size_t i = 0; i < partials.bytes.size(); ++i) {
      partials.are_of(i) ? argument.add_address(place_of_partials(addresses), partials.offsets[i]) : argument.add(int64_t{0});
    }
    for (size_t i = 0; i < partials.bytes.size(); ++i) {
      partials.are_of(i) ? argument.add_address(place_of_store(i)) : argument.add(int64_t{0});
    }
    argument.add_part(
        device::MergeLaunch{.slices = config.slices, .rows = rows.row_count, .rows_at_once = config.rows_at_once, .adds = call.added});
    for (size_t i = 0; i < partials.bytes.size(); ++i)
      argument.add_part(device::MergeStore{.count = rows.counts[i], .partial_bytes = partials.bytes[i]});
  }

  // Whether each row, and each segment of a row, begins at an aligned address and consists of whole vectors.
  bool is_aligned(const Call& call, const Rows& rows) const {
    if (rows.segment_length() % shape_.vector_length != 0) return false;
    for (size_t i = 0; i < rows.tensors.size(); ++i) {
      const auto is_off = [&](const Loop& loop) { return loop.size != 1 && loop.steps[i] % accesses_[i] != 0; };
      if (reinterpret_cast<uintptr_t>(rows.pointers[i]) % static_cast<uintptr_t>(accesses_[i]) != 0) return false;
      if (std::any_of(rows.rows.begin(), rows.rows.end(), is_off)) return false;
      if (rows.segments() != 1 && is_off(rows.columns[0])) return false;
    }
    return are_aligned(group_, call.leaves);
  }

  const std::shared_ptr<const CudaKernel> kernel_;
  const Shape shape_;
  const size_t passes_, numbers_;
  const std::vector<int64_t> widths_kept_;
  const bool has_numbers_;  // has results of one number per row
  const RowProblem problem_;
  const std::vector<int64_t> accesses_;
  mutable PreparedCalls prepared_;
};

}  // namespace

std::unique_ptr<const OpCall> make_row_call(const Group& group, std::shared_ptr<const CudaKernel> kernel) {
  return std::make_unique<RowCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen::cuda
