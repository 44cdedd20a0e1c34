#include "codegen/cuda/row_call.h"

#include "codegen/cuda/launch.h"
#include "codegen/cuda/results.h"
#include "codegen/cuda/row_source.h"
#include "codegen/cuda/row_writer.h"
#include "codegen/kernel/row_frame.h"

#include <algorithm>

namespace hindcast::codegen::cuda {
namespace {

int64_t whole_accesses(int64_t bytes) { return (bytes + kAccess - 1) / kAccess * kAccess; }

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
                 .goes_by_segments = goes_by_segments(group.body)} {}
  size_t footprint() const override { return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()); }

 private:
  // Results over rows on their way, slice by slice.
  struct Partials {
    at::Tensor memory;
    c10::SmallVector<char*, 16> pointers;  // by store
    c10::SmallVector<int64_t, 16> bytes;   // of one slice
  };

  // Threads read elements of others, for nothing.
  bool may_take_input(const Call& /*call*/, size_t /*store*/) const override { return false; }
  bool can_write_leaves(const Call& /*call*/) const override { return true; }
  bool can_add_to_leaf(size_t store) const override { return group_.body.stores[store].extent != Extent::Element; }

  void launch(Call& call) const override {
    Rows rows;
    lay_out_rows(call, rows);
    if (rows.row_count == 0) return clear_results(call);
    RowProblem problem = problem_;
    problem.rows = rows.row_count;
    problem.segments = rows.segments();
    problem.columns = rows.segment_length();
    problem.is_aligned = is_aligned(call, rows);
    problem.kept_bytes = 0;
    for (const int64_t width : widths_kept_) problem.kept_bytes += whole_accesses(rows.row_length() * width);
    RowSchedule schedule = schedule_rows(problem, shape_, machine()->limits());
    if (!kernel_->has_or_asks_for(schedule.rows.entry)) {
      schedule = schedule_any_rows(problem, shape_, machine()->limits());
      problem.is_aligned = schedule.rows.entry == Entry::Segments;
    }
    const Partials partials = make_partials(call, rows, schedule.slices);
    const at::Tensor numbers = make_numbers(problem.rows, schedule.splits);
    const size_t launches = schedule.splits == 0 ? 1 : passes_ + (has_numbers_ ? 1 : 0);
    for (size_t pass = 0; pass < launches; ++pass) launch_rows(call, rows, problem, schedule, partials, numbers, pass);
    if (schedule.slices != 0) launch_merge(call, rows, schedule, partials);
  }

  // Of no rows: sums, as others were refused.
  void clear_results(const Call& call) const {
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i].defined() && !call.is_added(i)) call.results[i].zero_();
    }
  }

  Partials make_partials(const Call& call, const Rows& rows, int64_t slices) const {
    Partials partials;
    int64_t bytes = 0;
    const auto width = static_cast<int64_t>(c10::elementSize(group_.body.compute));
    for (size_t i = 0; i < call.results.size(); ++i) {
      const bool is_over_rows = group_.body.stores[i].is_over_rows();
      partials.bytes.push_back(is_over_rows ? whole_accesses(rows.counts[i] * width) : 0);
      bytes += partials.bytes.back() * slices;
    }
    if (bytes != 0) partials.memory = result_maker().make_new({bytes}, {1}, at::kByte, group_.device);
    char* memory = memory_of(partials.memory);
    for (size_t i = 0; i < call.results.size(); ++i) {
      const bool is_partial = slices != 0 && group_.body.stores[i].is_over_rows();
      partials.pointers.push_back(is_partial ? memory : rows.pointers[loads_ + i]);
      if (is_partial) memory += partials.bytes[i] * slices;
    }
    return partials;
  }

  // What blocks that share a row tell each other, from pass to pass.
  at::Tensor make_numbers(int64_t rows, int64_t splits) const {
    if (splits == 0) return {};
    const int64_t bytes = rows * splits * static_cast<int64_t>(numbers_) * device::kNumberBytes;
    return result_maker().make_new({bytes}, {1}, at::kByte, group_.device);
  }

  void launch_rows(const Call& call, const Rows& rows, const RowProblem& problem, const RowSchedule& schedule, const Partials& partials,
                   const at::Tensor& numbers, size_t pass) const {
    Arguments arguments;
    TouchedMemory touched;
    for (size_t i = 0; i < loads_; ++i) {
      arguments.add(rows.pointers[i]);
      touched.reads(rows.tensors[i]);
    }
    for (size_t i = 0; i < call.results.size(); ++i) {
      arguments.add(partials.pointers[i]);
      touched.result(call.results[i], call.is_added(i));
    }
    touched.writes(partials.memory);
    touched.leaves(call.leaves);
    add_leaves(arguments, group_, call.leaves);
    for (const double scalar : call.scalars) arguments.add_scalar(group_.body.compute, scalar);
    const int64_t length = problem.is_aligned ? shape_.vector_length : 1;
    arguments.add(problem.rows);
    arguments.add(problem.segments);
    arguments.add(problem.columns);
    arguments.add(device::divider_of(std::max<int64_t>(problem.columns / length, 1)));
    arguments.add(static_cast<int64_t>(rows.rows.size()));
    for (size_t i = 0; i < device::kMostLoops; ++i) arguments.add(device::divider_of(i < rows.rows.size() ? rows.rows[i].size : 1));
    const size_t tensors = rows.tensors.size();
    arguments.add_table(rows.rows.size(), tensors, device::kMostLoops, [&](size_t loop, size_t i) { return rows.rows[loop].steps[i]; });
    for (size_t i = 0; i < tensors; ++i) arguments.add(problem.segments == 1 ? int64_t{0} : rows.columns[0].steps[i]);
    const size_t stores = std::max<size_t>(call.results.size(), 1);
    for (size_t i = 0; i < stores; ++i) arguments.add(i < call.results.size() ? partials.bytes[i] : int64_t{0});
    for (size_t i = 0; i < stores; ++i) arguments.add(i < call.results.size() ? rows.counts[i] : int64_t{0});
    arguments.add(int64_t{schedule.slices == 0});
    const int64_t pieces = problem.segments * problem.columns / length, splits = std::max<int64_t>(schedule.splits, 1);
    arguments.add(static_cast<int64_t>(pass));
    arguments.add(splits);
    arguments.add((pieces + splits - 1) / splits);
    arguments.add(memory_of(numbers));
    pass == 0 ? touched.writes(numbers) : touched.reads(numbers);
    arguments.add(problem.kept_bytes);
    arguments.add(static_cast<int64_t>(call.added));
    cuda::launch(*kernel_, schedule.rows, static_cast<uint32_t>(schedule.shared_bytes), arguments, group_.device, touched);
  }

  void launch_merge(const Call& call, const Rows& rows, const RowSchedule& schedule, const Partials& partials) const {
    Arguments arguments;
    TouchedMemory touched;
    const size_t count = call.results.size();
    int64_t most = 0, stores = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!group_.body.stores[i].is_over_rows()) continue;
      most = std::max(most, rows.counts[i]);
      ++stores;
      touched.result(call.results[i], call.is_added(i));
    }
    if (most == 0) return;
    touched.reads(partials.memory);
    // It does not know the others: an address that no tensor is noted for could not move.
    const auto if_over_rows = [&](size_t i, char* pointer) { return group_.body.stores[i].is_over_rows() ? pointer : nullptr; };
    for (size_t i = 0; i < count; ++i) arguments.add(if_over_rows(i, partials.pointers[i]));
    for (size_t i = 0; i < count; ++i) arguments.add(if_over_rows(i, rows.pointers[loads_ + i]));
    for (const int64_t number : rows.counts) arguments.add(number);
    for (const int64_t bytes : partials.bytes) arguments.add(bytes);
    arguments.add(schedule.slices);
    arguments.add(rows.row_count);
    arguments.add(schedule.rows_at_once);
    arguments.add(static_cast<int64_t>(call.added));
    cuda::launch(*kernel_, schedule_merge(most, stores), 0, arguments, group_.device, touched);
  }

  // Each row, and each segment of one, begins at an aligned address and is made of whole vectors.
  bool is_aligned(const Call& call, const Rows& rows) const {
    if (rows.segment_length() % shape_.vector_length != 0) return false;
    for (size_t i = 0; i < rows.tensors.size(); ++i) {
      if (i < loads_ ? group_.body.loads[i].pattern != AccessPattern::Dense : group_.body.stores[i - loads_].extent != Extent::Element)
        continue;
      const at::ScalarType type = i < loads_ ? group_.body.loads[i].type : group_.body.stores[i - loads_].type;
      const int64_t vector = std::min<int64_t>(static_cast<int64_t>(c10::elementSize(type)) * shape_.vector_length, kAccess);
      const auto is_off = [&](const Loop& loop) { return loop.size != 1 && loop.steps[i] % vector != 0; };
      if (reinterpret_cast<uintptr_t>(rows.pointers[i]) % static_cast<uintptr_t>(vector) != 0) return false;
      if (std::any_of(rows.rows.begin(), rows.rows.end(), is_off)) return false;
      if (rows.segments() != 1 && is_off(rows.columns[0])) return false;
    }
    return are_aligned(group_, call.leaves);
  }

  const std::shared_ptr<const CudaKernel> kernel_;
  const Shape shape_;
  const size_t passes_, numbers_;
  const std::vector<int64_t> widths_kept_;
  const bool has_numbers_;  // results of a row each
  const RowProblem problem_;
};

}  // namespace

std::unique_ptr<const OpCall> make_row_call(const Group& group, std::shared_ptr<const CudaKernel> kernel) {
  return std::make_unique<RowCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen::cuda
