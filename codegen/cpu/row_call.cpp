#include "codegen/cpu/row_call.h"

#include "base/check.h"
#include "codegen/cpu/joined_rows.h"
#include "codegen/cpu/leaf_writes.h"
#include "codegen/cpu/nontemporal_stores.h"
#include "codegen/cpu/parallel.h"
#include "codegen/cpu/partial_results.h"
#include "codegen/cpu/prepared_kernel.h"
#include "codegen/cpu/results.h"
#include "codegen/cpu/row_packing.h"
#include "codegen/cpu/source.h"
#include "codegen/kernel/row_frame.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

namespace hindcast::codegen::cpu {
namespace {

// The number of rows per block of results over rows. Within a block, each column has one accumulator: such a sum loses a bit each time its
// length grows fourfold. Results of more rows are merged from blocks, kBlock blocks at a time.
constexpr int64_t kBlock = 64;
// The most elements of a row that stay in the L1 cache beside what the kernel reads.
constexpr int64_t kLongestStreamed = 4096;

class RowCall final : public RowFrame {
 public:
  RowCall(const Group& group, std::shared_ptr<const CpuKernel> kernel)
      : RowFrame(group, result_maker()),
        kernel_(std::move(kernel)),
        grain_(grain_of(group.body)),
        compute_size_(static_cast<int64_t>(c10::elementSize(group.body.compute))),
        scratch_(static_cast<int64_t>(row_scratch(group.body))),
        over_rows_(group.body),
        counts_rows_(has_moments_over_rows(group.body)),
        may_join_rows_(JoinedRows::may_be(group.body)),
        has_part_for_short_rows_(has_part_for_short_rows(group.body)) {
    for (const BodyLoad& load : group.body.loads) {
      if (load.is_checked) checked_.push_back(traffic_.size());
      traffic_.push_back(load.pattern == AccessPattern::Dense ? Traffic::Read : Traffic::Other);
      widths_.push_back(static_cast<int64_t>(c10::elementSize(load.type)));
    }
    for (size_t i = 0; i < group.stores.size(); ++i) {
      const BodyStore& store = group.body.stores[i];
      takes_memory_.push_back(is_written_last(group.body, i) && is_read_as_written(i));
      traffic_.push_back(store.extent == Extent::Element ? Traffic::Written : Traffic::Other);
      widths_.push_back(static_cast<int64_t>(c10::elementSize(store.type)));
    }
  }
  size_t footprint() const override { return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()); }

  // Only calls that run on one thread are prepared.
  std::unique_ptr<const PreparedCall> prepare(const Step& step, Slots& slots, const capture::Env& env) const override {
    if (!may_be_prepared(step, slots)) return nullptr;
    Call call(step, slots, env, *this);
    if (!may_be_prepared(call)) return nullptr;
    make_unread_results(call);
    auto prepared = std::make_unique<PreparedRows>(*this, call);
    Rows& rows = prepared->laid_out;
    lay_out_rows(call, rows);
    for (size_t i = 0; i < loads_; ++i) {
      if (!rows.tensors[i].is_same(call.load(i))) return nullptr;
    }
    if (rows.segments() > 1 || rows.row_count * rows.row_length() > grain_) return nullptr;
    rows.tensors.clear();
    return prepared;
  }

 private:
  // The two nests of one call, and where its tensors begin.
  struct Launch : Rows {
    c10::SmallVector<Traffic, 32> traffic;  // by pointer, if there is more than one segment per row
    c10::SmallVector<int64_t, 32> widths;   // the same: bytes of an element
    bool copies_segments = false;
    JoinedRows joined;
    NontemporalStores nontemporal;

    /// The number of elements in the kernel's inner loop.
    int64_t loop_length() const { return copies_segments ? row_length() : segment_length(); }
  };

  class PreparedRows final : public PreparedKernel {
   public:
    PreparedRows(const RowCall& of, const Call& call)
        : PreparedKernel(of.layouts_of_results(call), of.loads_, call.step.inputs.size(), of.scalars_, call.env, call.concats), of_(of) {}
    void run(char* const* addresses, const capture::Env& env) const override {
      Scalars memory;
      Launch launch;
      static_cast<Rows&>(launch) = laid_out;
      launch.pointers = pointers_of(addresses);
      of_.arrange(launch);
      of_.run_arranged(launch, of_.kernel_->rows, scalars_of(env, memory));
    }

    Rows laid_out;  // without tensors

   private:
    const RowCall& of_;
  };

  bool may_take_input(const Call& /*call*/, size_t store) const override { return takes_memory_[store]; }
  // The function that writes to leaves goes through short rows one by one: that costs more than a kernel for the leaves.
  bool can_write_leaves(const Call& /*call*/) const override { return kernel_->rows_to_leaves != nullptr && !has_part_for_short_rows_; }

  void launch(Call& call) const override {
    Launch launch;
    lay_out_rows(call, launch);
    arrange(launch);
    std::optional<LeafPointers> pointers;  // owns the zeros that they point to
    if (call.leaves != nullptr) add_leaves(launch, pointers.emplace(group_, *call.leaves, launch.loop_length()));
    run_arranged(launch, call.leaves != nullptr ? kernel_->rows_to_leaves : kernel_->rows, call.scalars.data());
  }

  // As ATen's gather() does, which raises a RuntimeError in Python.
  void check_indices(const Rows& launch) const {
    for (const size_t load : checked_) {
      const Loop& inner = launch.rows.back();
      for (int64_t first = 0; first < launch.row_count; first += inner.size) {
        const char* at = launch.pointers[load];
        int64_t rest = first / inner.size;
        for (size_t d = launch.rows.size() - 1; d-- > 0; rest /= launch.rows[d].size)
          at += rest % launch.rows[d].size * launch.rows[d].steps[load];
        check_indices(at, inner.size, inner.steps[load], launch.row_length());
      }
    }
  }
  static void check_indices(const char* at, int64_t count, int64_t step, int64_t columns) {
    for (int64_t i = 0; i < count; ++i, at += step) {
      const int64_t index = *reinterpret_cast<const int64_t*>(at);
      TORCH_CHECK(index >= 0 && index < columns, "index ", index, " is out of bounds for a dimension with size ", columns);
    }
  }

  void run_arranged(Launch& launch, RowsKernel* kernel, const double* scalars) const {
    check_indices(launch);
    run_rows(launch, kernel, scalars);
    launch.joined.merge_results(over_rows_, launch);
    if (!launch.joined.has_rest()) return;
    launch.joined.go_on_with_rest(over_rows_, launch);
    run_rows(launch, kernel, scalars);
    launch.joined.merge_rest(over_rows_, launch);
  }

  void arrange(Launch& launch) const {
    if (may_join_rows_) launch.joined.join(group_.body, over_rows_, widths_, launch);
    if (launch.segments() > 1 && group_.channels == 0) look_at_segments(launch);
    over_rows_.clear(launch.pointers, launch.counts);
    for (size_t i = loads_; i < launch.tensors.size(); ++i) {
      if (may_be_nontemporal(launch, i)) launch.nontemporal.add_new(launch.pointers, loads_, i, widths_[i]);
    }
  }

  // Whether a result can use non-temporal stores: its rows must be contiguous, so that several fit into the buffer.
  bool may_be_nontemporal(const Launch& launch, size_t result) const {
    if (launch.rows.size() != 1 || launch.segments() != 1 ||
        !NontemporalStores::are_worth_it(launch.row_count * launch.row_length() * widths_[result]))
      return false;
    return launch.tensors[result].defined() && launch.row_length() <= kLongestStreamed &&
           launch.rows[0].steps[result] == launch.row_length() * widths_[result] && traffic_[result] == Traffic::Written;
  }

  void look_at_segments(Launch& launch) const {
    launch.traffic.assign(traffic_.begin(), traffic_.end());
    launch.widths.assign(widths_.begin(), widths_.end());
    for (size_t i = 0; i < launch.tensors.size(); ++i) {
      if (!launch.tensors[i].defined()) launch.traffic[i] = Traffic::Other;
    }
    launch.copies_segments = RowPacking::are_worth_copying(launch.traffic, launch.widths, launch.segments(), launch.segment_length());
  }

  // A leaf's gradient has the layout of the result; scratch elements, which every segment of every row uses, have strides of 0.
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
      if (!launch.copies_segments) continue;
      launch.traffic.push_back(!leaf.is_tensor ? Traffic::Other : is_sum ? Traffic::Written : Traffic::Read);
      launch.widths.push_back(widths_[loads_ + leaf.store]);
      is_sum = !is_sum;
    }
  }

  void run_rows(const Launch& launch, RowsKernel* kernel, const double* scalars) const {
    const int64_t row_length = launch.row_length(), rows = launch.row_count;
    if (rows == 0) return;
    const int64_t shares = std::min(rows, shares_of(rows * row_length, grain_));
    // The first share writes directly to the results.
    const int64_t bytes = over_rows_.bytes(launch.counts);
    std::vector<char> others(static_cast<size_t>((shares - 1) * bytes));
    const auto pointers_of_share = [&](int64_t share) {
      Pointers at(launch.pointers.begin(), launch.pointers.end());
      if (share > 0) over_rows_.move_to(others.data() + (share - 1) * bytes, at, launch.counts);
      return at;
    };
    const auto first_row_of = [&](int64_t share) { return rows * share / shares; };
    const auto run_share = [&](int64_t share) {
      Pointers at = pointers_of_share(share);
      if (share > 0) over_rows_.clear(at, launch.counts);
      std::vector<char> unread;
      for (char*& pointer : at) {
        if (pointer != nullptr) continue;
        unread.resize(static_cast<size_t>(launch.loop_length()) * sizeof(double));
        pointer = unread.data();
      }
      run_range(launch, kernel, at, scalars, first_row_of(share), first_row_of(share + 1));
    };
    run_shares(shares, run_share);
    for (int64_t share = 1; share < shares; ++share) {
      const int64_t first = first_row_of(share);
      over_rows_.merge(launch.pointers, first, pointers_of_share(share), first_row_of(share + 1) - first, launch.counts);
    }
  }

  // Processes rows [begin, end), with results over rows by blocks.
  void run_range(const Launch& launch, RowsKernel* kernel, const Pointers& pointers, const double* scalars, int64_t begin,
                 int64_t end) const {
    const int64_t row_length = launch.row_length();
    constexpr size_t kCount = sizeof(int64_t);
    std::vector<char> kept(static_cast<size_t>(scratch_ * row_length * compute_size_) + (counts_rows_ ? kCount : 0));
    std::optional<RowPacking> row_packing;
    if (launch.copies_segments) row_packing.emplace(launch.traffic, launch.widths, launch.columns.front(), launch.segment_length());
    const int64_t rows_at_once = std::max<int64_t>(kNontemporalAtOnce / std::max<int64_t>(row_length, 1), 1);
    NontemporalStores::Block buffered(launch.nontemporal, rows_at_once * row_length);
    const auto run_block = [&](const Pointers& at, int64_t first, int64_t last) {
      if (counts_rows_) std::memset(kept.data(), 0, kCount);
      const int64_t rows = launch.nontemporal.empty() ? last - first : rows_at_once;
      for (int64_t row = first; row < last; row += rows) {
        const int64_t end = std::min(row + rows, last);
        this->run_block(launch, kernel, row_packing ? &*row_packing : nullptr, buffered, at, scalars, row, end, kept.data());
        buffered.write((end - row) * row_length);
      }
    };
    const auto run_blocks = [&](const auto& self, const Pointers& to, int64_t first, int64_t last) -> void {
      if (over_rows_.empty() || last - first <= kBlock) return run_block(to, first, last);
      int64_t rows = kBlock;
      while (rows * kBlock < last - first) rows *= kBlock;
      std::vector<char> part(static_cast<size_t>(over_rows_.bytes(launch.counts)));
      Pointers at(to.begin(), to.end());
      over_rows_.move_to(part.data(), at, launch.counts);
      for (int64_t row = first; row < last; row += rows) {
        const int64_t behind = std::min(last, row + rows);
        over_rows_.clear(at, launch.counts);
        self(self, at, row, behind);
        over_rows_.merge(to, row - first, at, behind - row, launch.counts);
      }
    };
    run_blocks(run_blocks, pointers, begin, end);
  }

  void run_block(const Launch& launch, RowsKernel* kernel, RowPacking* row_packing, NontemporalStores::Block& buffered,
                 const Pointers& pointers, const double* scalars, int64_t begin, int64_t end, char* kept) const {
    const Loop& inner = launch.rows.back();
    const Loop& columns = launch.columns.back();
    const int64_t* segment_strides = launch.columns.front().steps.data();
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
      const device::RowLoopArguments arguments = {.pointers = at.data(),
                                                  .scalars = scalars,
                                                  .rows = rows,
                                                  .row_strides = inner.steps.data(),
                                                  .segments = launch.segments(),
                                                  .segment_strides = segment_strides,
                                                  .columns = columns.size,
                                                  .kept = kept};
      row_packing ? row_packing->run(kernel, arguments) : kernel(arguments);
      begin += rows;
    }
  }

  const std::shared_ptr<const CpuKernel> kernel_;
  const int64_t grain_, compute_size_, scratch_;
  const PartialResults over_rows_;
  const bool counts_rows_;  // whether the kernel counts rows (has_moments_over_rows())
  const bool may_join_rows_, has_part_for_short_rows_;
  std::vector<size_t> checked_;     // loads of indices
  std::vector<bool> takes_memory_;  // by store: whether it may reuse an operand's memory
  std::vector<Traffic> traffic_;    // by load, then by store
  std::vector<int64_t> widths_;     // the same: bytes of an element
};

}  // namespace

std::unique_ptr<const OpCall> make_row_call(const Group& group, std::shared_ptr<const CpuKernel> kernel) {
  return std::make_unique<RowCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen::cpu
