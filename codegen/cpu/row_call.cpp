#include "codegen/cpu/row_call.h"

#include "codegen/kernel/launch_args.h"
#include "codegen/kernel/leaf_requests.h"
#include "codegen/cpu/parallel.h"
#include "codegen/cpu/row_packing.h"
#include "codegen/cpu/nontemporal_stores.h"
#include "codegen/cpu/memory/empty_recycled.h"
#include "base/check.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace hindcast::codegen {
namespace {

using capture::Env;

// Rows that are summed in one variable a column, or in some a channel; longer sums are sums of such sums.
constexpr int64_t kBlock = 256;
// Elements of a row that still stays in the innermost cache, beside what the kernel reads.
constexpr int64_t kLongestStreamed = 4096;

bool is_summed_over_rows(const BodyStore& store) { return store.extent == Extent::Columns || store.extent == Extent::Channels; }

// The two nests of one call, and where its tensors begin.
struct Launch {
  c10::SmallVector<at::Tensor, 16> tensors;
  Pointers pointers;
  c10::SmallVector<Loop, 4> rows, columns;  // columns: one or two loops
  c10::SmallVector<Traffic, 32> traffic;    // by pointer, where there is more than one run a row
  c10::SmallVector<int64_t, 32> widths;     // the same: an element's bytes
  int64_t row_count = 1;
  bool copies_runs = false;
  NontemporalStores nontemporal;

  int64_t runs() const { return columns.size() > 1 ? columns[0].size : 1; }
  int64_t run_length() const { return columns.back().size; }
  int64_t row_length() const { return runs() * run_length(); }
  /// Of the elements that the kernel goes over at once.
  int64_t loop_length() const { return copies_runs ? row_length() : run_length(); }
};

class RowCall final : public OpCall {
 public:
  RowCall(const Group& group, std::shared_ptr<const CpuKernel> kernel)
      : kernel_(std::move(kernel)),
        group_(group),
        scalars_(group.scalars),
        loads_(group.body.loads.size()),
        compute_size_(static_cast<int64_t>(c10::elementSize(group.body.compute))),
        scratch_(static_cast<int64_t>(row_scratch(group.body))),
        grain_(grain_of(group.body)) {
    for (uint8_t axis = 0; axis < group.domain.size(); ++axis) (group.columns >> axis & 1 ? column_axes_ : row_axes_).push_back(axis);
    for (const BodyLoad& load : group.body.loads) {
      traffic_.push_back(load.walk == Walk::Dense ? Traffic::Read : Traffic::Other);
      widths_.push_back(static_cast<int64_t>(c10::elementSize(load.type)));
    }
    for (size_t i = 0; i < group.stores.size(); ++i) {
      const BodyStore& store = group.body.stores[i];
      if (is_summed_over_rows(store)) sums_.push_back(i);
      written_last_.push_back(is_written_last(group.body, i));
      traffic_.push_back(store.extent == Extent::Element ? Traffic::Written : Traffic::Other);
      widths_.push_back(static_cast<int64_t>(c10::elementSize(store.type)));
    }
  }

  void run(const Step& step, Slots& slots, const Env& env) const override {
    const Ints domain = sizes_of(group_.domain, env);
    const auto scalars = scalars_.values(env);
    for (size_t i = 0; i < loads_; ++i) make_plain(slots[step.inputs[i].slot]);
    const LeafWrites leaves(group_, step, slots, [&](size_t store) -> ResultLayout {
      const Ints shape = sizes_of(group_.shapes[store], env);
      return {shape, row_major_strides(shape), group_.body.stores[store].type};
    });
    const bool to_leaves = kernel_->rows_to_leaves && !leaves.empty();
    Launch launch = prepare(step, slots, domain, env, to_leaves ? &leaves : nullptr);
    std::optional<LeafPointers> pointers;  // and the zeros that they point to
    if (to_leaves) add_leaves(launch, pointers.emplace(group_, leaves, launch.loop_length()));
    run_rows(launch, to_leaves ? kernel_->rows_to_leaves : kernel_->rows, scalars.data());
    for (const SlotUse use : step.inputs) {
      if (use.last) slots[use.slot].reset();
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      at::Tensor& result = launch.tensors[loads_ + i];
      const at::ScalarType type = group_.body.stores[i].type;
      if (result.defined() && result.scalar_type() != type) result = result.to(type);
      if (!to_leaves || group_.body.stores[i].leaves == 0) leaves.write(i, result);
      slots[step.outputs[i]] = std::move(result);
    }
  }

  bool writes_leaves() const override { return true; }

  std::string describe() const override { return describe_kernel(group_); }
  size_t footprint() const override { return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()); }

 private:
  Launch prepare(const Step& step, const Slots& slots, at::IntArrayRef domain, const Env& env, const LeafWrites* to_leaves) const {
    Launch launch;
    c10::SmallVector<Ints, 16> steps;
    ResultMemory memory(step, slots, loads_);
    for (size_t i = 0; i < loads_; ++i) {
      launch.tensors.push_back(slots[step.inputs[i].slot]);
      steps.push_back(steps_of(launch.tensors.back(), group_.accesses[i], domain, env));
      if (C10_UNLIKELY(!goes_as_captured(i, domain, steps.back()))) make_dense(launch.tensors.back(), steps.back(), domain);
    }
    for (size_t i = 0; i < group_.stores.size(); ++i) {
      const BodyStore& store = group_.body.stores[i];
      const Ints shape = sizes_of(group_.shapes[i], env);
      const bool is_sum = is_summed_over_rows(store);
      const Ints strides = row_major_strides(shape);
      const at::ScalarType type = is_sum ? group_.body.compute : store.type;
      if (to_leaves && store.leaves != 0 && to_leaves->is_only_added(i)) {
        launch.tensors.emplace_back();
      } else {
        launch.tensors.push_back(written_last_[i] ? memory.make(shape, strides, type) : empty_strided_recycled(shape, strides, type));
      }
      if (is_sum) {
        const at::Tensor& sum = launch.tensors.back();
        if (sum.numel() != 0) std::memset(sum.mutable_data_ptr(), 0, sum.nbytes());
      }
      steps.push_back(steps_of_result(i, domain, static_cast<int64_t>(c10::elementSize(type))));
    }
    launch.rows = make_nest(domain, row_axes_, steps);
    launch.columns = make_nest(domain, column_axes_, steps);
    if (C10_UNLIKELY(launch.columns.size() > 2)) {  // loads that are broadcast within the row
      for (size_t i = 0; i < loads_; ++i) {
        if (group_.body.loads[i].walk == Walk::Dense) make_dense(launch.tensors[i], steps[i], domain);
      }
      launch.columns = make_nest(domain, column_axes_, steps);
      launch.rows = make_nest(domain, row_axes_, steps);
      HC_CHECK(launch.columns.size() <= 2, "columns in more than two runs");
    }
    for (const Loop& loop : launch.rows) launch.row_count *= loop.size;
    if (launch.runs() > 1 && group_.channels == 0) look_at_runs(launch);
    for (const at::Tensor& tensor : launch.tensors)
      launch.pointers.push_back(tensor.defined() ? static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())) : nullptr);
    for (size_t i = loads_; i < launch.tensors.size(); ++i) {
      if (may_be_nontemporal(launch, i)) launch.nontemporal.add_new(launch.pointers, loads_, i, widths_[i]);
    }
    return launch;
  }

  // Rows that follow each other in memory, some of them at once.
  bool may_be_nontemporal(const Launch& launch, size_t result) const {
    if (launch.rows.size() != 1 || launch.runs() != 1 ||
        !NontemporalStores::are_worth_it(launch.row_count * launch.row_length() * widths_[result]))
      return false;
    return launch.tensors[result].defined() && launch.row_length() <= kLongestStreamed &&
           launch.rows[0].steps[result] == launch.row_length() * widths_[result] && traffic_[result] == Traffic::Written;
  }

  void look_at_runs(Launch& launch) const {
    launch.traffic.assign(traffic_.begin(), traffic_.end());
    launch.widths.assign(widths_.begin(), widths_.end());
    for (size_t i = 0; i < launch.tensors.size(); ++i) {
      if (!launch.tensors[i].defined()) launch.traffic[i] = Traffic::Other;
    }
    launch.copies_runs = RowPacking::are_worth_copying(launch.traffic, launch.widths, launch.runs(), launch.run_length());
  }

  // Still: one number a row. ByRun: one for each channel of it. Dense: side by side along the innermost axis.
  bool goes_as_captured(size_t load, at::IntArrayRef domain, const Ints& steps) const {
    const BodyLoad& as = group_.body.loads[load];
    bool innermost = true;
    for (size_t i = column_axes_.size(); i-- > 0;) {
      if (domain[column_axes_[i]] == 1) continue;
      const int64_t step = steps[column_axes_[i]];
      switch (as.walk) {
        case Walk::Still:
          if (step != 0) return false;
          break;
        case Walk::ByRun:
          if (step != 0 && !(group_.channels >> column_axes_[i] & 1)) return false;
          break;
        case Walk::Dense:
          if (innermost && step != static_cast<int64_t>(c10::elementSize(as.type))) return false;
          break;
      }
      innermost = false;
    }
    return true;
  }

  static void make_dense(at::Tensor& tensor, Ints& steps, at::IntArrayRef domain) {
    const auto bytes = static_cast<int64_t>(tensor.element_size());
    Ints strides = steps;
    for (int64_t& stride : strides) stride /= bytes;
    tensor = tensor.as_strided(domain, strides).contiguous();
    steps = row_major_strides(domain);
    for (int64_t& step : steps) step *= bytes;
  }

  Ints steps_of_result(size_t store, at::IntArrayRef domain, int64_t bytes) const {
    const Extent extent = group_.body.stores[store].extent;
    Ints steps(domain.size(), 0);
    int64_t step = bytes;
    for (size_t axis = domain.size(); axis-- > 0;) {
      const bool is_column = group_.columns >> axis & 1;
      if ((extent == Extent::Row && is_column) || (extent == Extent::Columns && !is_column)) continue;
      if (extent == Extent::Channels && !(group_.channels >> axis & 1)) continue;
      steps[axis] = step;
      step *= domain[axis];
    }
    return steps;
  }

  // A leaf's gradient lies as the result does; elements that are there for every run of every row stay where they are.
  void add_leaves(Launch& launch, const LeafPointers& leaves) const {
    const auto add_steps = [&](Loop& loop) {
      for (const LeafPointers::Pointer& leaf : leaves.all()) loop.steps.push_back(leaf.is_tensor ? loop.steps[loads_ + leaf.store] : 0);
      for (size_t i = loads_; i < launch.tensors.size(); ++i) {
        if (!launch.tensors[i].defined()) loop.steps[i] = 0;
      }
    };
    std::for_each(launch.rows.begin(), launch.rows.end(), add_steps);
    std::for_each(launch.columns.begin(), launch.columns.end(), add_steps);
    bool is_sum = true;
    for (const LeafPointers::Pointer& leaf : leaves.all()) {
      const size_t store = loads_ + leaf.store;
      if (leaf.is_new && may_be_nontemporal(launch, store)) launch.nontemporal.add(launch.pointers.size(), widths_[store]);
      launch.pointers.push_back(leaf.memory);
      if (!launch.copies_runs) continue;
      launch.traffic.push_back(!leaf.is_tensor ? Traffic::Other : is_sum ? Traffic::Written : Traffic::Read);
      launch.widths.push_back(widths_[loads_ + leaf.store]);
      is_sum = !is_sum;
    }
  }

  void run_rows(const Launch& launch, RowsKernel* kernel, const double* scalars) const {
    const int64_t row_length = launch.row_length(), rows = launch.row_count;
    if (rows == 0) return;
    const int64_t shares = std::min(rows, shares_of(rows * row_length, grain_));
    // The first share sums into the results themselves.
    std::vector<char> other_sums(static_cast<size_t>((shares - 1) * sum_bytes(launch)));
    const auto sums_of_share = [&](int64_t share) { return other_sums.data() + (share - 1) * sum_bytes(launch); };
    const auto run_share = [&](int64_t share) {
      Pointers at(launch.pointers.begin(), launch.pointers.end());
      if (share > 0) point_to_sums(launch, at, sums_of_share(share));
      std::vector<char> unread;
      for (char*& pointer : at) {
        if (pointer != nullptr) continue;
        unread.resize(static_cast<size_t>(launch.loop_length()) * sizeof(double));
        pointer = unread.data();
      }
      run_range(launch, kernel, at, scalars, rows * share / shares, rows * (share + 1) / shares);
    };
    run_shares(shares, run_share);
    for (int64_t share = 1; share < shares; ++share) add_sums(launch, launch.pointers, sums_of_share(share));
  }

  // Memory for one of each sum, one behind the other.
  int64_t sum_bytes(const Launch& launch) const {
    int64_t bytes = 0;
    for (const size_t sum : sums_) bytes += launch.tensors[loads_ + sum].numel() * compute_size_;
    return bytes;
  }
  void point_to_sums(const Launch& launch, Pointers& pointers, char* memory) const {
    for (const size_t sum : sums_) {
      pointers[loads_ + sum] = memory;
      memory += launch.tensors[loads_ + sum].numel() * compute_size_;
    }
  }
  void add_sums(const Launch& launch, const Pointers& to, const char* memory) const {
    for (const size_t sum : sums_) {
      const int64_t count = launch.tensors[loads_ + sum].numel();
      add_elements(group_.body.compute, to[loads_ + sum], memory, count);
      memory += count * compute_size_;
    }
  }

  // Rows [begin, end), sums by blocks.
  void run_range(const Launch& launch, RowsKernel* kernel, const Pointers& pointers, const double* scalars, int64_t begin,
                 int64_t end) const {
    const int64_t row_length = launch.row_length();
    std::vector<char> kept(static_cast<size_t>(scratch_ * row_length * compute_size_));
    std::optional<RowPacking> row_packing;
    if (launch.copies_runs) row_packing.emplace(launch.traffic, launch.widths, launch.columns.front(), launch.run_length());
    const int64_t rows_at_once = std::max<int64_t>(kNontemporalAtOnce / std::max<int64_t>(row_length, 1), 1);
    NontemporalStores::Block buffered(launch.nontemporal, rows_at_once * row_length);
    const auto run_block = [&](const Pointers& at, int64_t first, int64_t last) {
      const int64_t rows = launch.nontemporal.empty() ? last - first : rows_at_once;
      for (int64_t row = first; row < last; row += rows) {
        const int64_t end = std::min(row + rows, last);
        this->run_block(launch, kernel, row_packing ? &*row_packing : nullptr, buffered, at, scalars, row, end, kept.data());
        buffered.write((end - row) * row_length);
      }
    };
    if (sums_.empty() || end - begin <= kBlock) return run_block(pointers, begin, end);
    std::vector<char> block(static_cast<size_t>(sum_bytes(launch)));
    Pointers at(pointers.begin(), pointers.end());
    point_to_sums(launch, at, block.data());
    for (int64_t row = begin; row < end; row += kBlock) {
      std::fill(block.begin(), block.end(), char(0));
      run_block(at, row, std::min(end, row + kBlock));
      add_sums(launch, pointers, block.data());
    }
  }

  void run_block(const Launch& launch, RowsKernel* kernel, RowPacking* row_packing, NontemporalStores::Block& buffered,
                 const Pointers& pointers, const double* scalars, int64_t begin, int64_t end, char* kept) const {
    const Loop& inner = launch.rows.back();
    const Loop& columns = launch.columns.back();
    const int64_t* run_steps = launch.columns.front().steps.data();
    Pointers at(pointers.size());
    while (begin < end) {
      std::copy(pointers.begin(), pointers.end(), at.begin());
      int64_t rest = begin;
      for (size_t d = launch.rows.size(); d-- > 0;) {
        const int64_t index = rest % launch.rows[d].size;
        rest /= launch.rows[d].size;
        for (size_t i = 0; i < at.size(); ++i) at[i] += index * launch.rows[d].steps[i];
      }
      const int64_t rows = std::min(end - begin, inner.size - begin % inner.size);
      buffered.take_place_of(at);
      if (row_packing) {
        row_packing->run(kernel, at, scalars, rows, inner.steps, kept);
      } else {
        kernel(at.data(), scalars, rows, inner.steps.data(), launch.runs(), run_steps, columns.size, kept);
      }
      begin += rows;
    }
  }

  std::shared_ptr<const CpuKernel> kernel_;
  const Group group_;
  const ScalarArgs scalars_;
  const size_t loads_;
  const int64_t compute_size_, scratch_, grain_;
  std::vector<uint8_t> row_axes_, column_axes_;
  std::vector<size_t> sums_;        // stores
  std::vector<bool> written_last_;  // by store: nothing of the row is read afterwards
  std::vector<Traffic> traffic_;    // by load, then by store
  std::vector<int64_t> widths_;     // the same: an element's bytes
};

}  // namespace

std::unique_ptr<const OpCall> make_row_call(const Group& group, std::shared_ptr<const CpuKernel> kernel) {
  return std::make_unique<RowCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen
