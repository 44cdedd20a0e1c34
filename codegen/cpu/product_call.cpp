#include "codegen/cpu/product_call.h"

#include "codegen/cpu/loop_nest.h"
#include "codegen/cpu/memory/empty_recycled.h"
#include "codegen/cpu/parallel.h"
#include "codegen/cpu/prepared_kernel.h"
#include "codegen/cpu/product_times.h"
#include "codegen/cpu/results.h"
#include "codegen/device/products.h"
#include "codegen/kernel/pointwise_frame.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

namespace hindcast::codegen::cpu {
namespace {

// Threads are assigned multiples of this many rows.
constexpr int64_t kSharedRows = 8;
// Minimum multiply-adds per thread, within one product of a batch.
constexpr int64_t kGrainOfProduct = int64_t{1} << 20;
// The multiply-adds of a measurement, which takes about a millisecond. A depth below 16 counts as 16, so that results of a measurement have
// at most 4 Mi elements. But at least kFewestRows rows are timed, since a copy of a panel is shared by all rows.
constexpr int64_t kMeasured = int64_t{1} << 26, kDepthOfLargeResults = 16, kFewestRows = 64;

// Bytes. ATen computes deeper products whose second factor must be copied by panels: the scratch memory would be visible in peak memory.
constexpr int64_t kLargestPanel = int64_t{4} << 20;

/// The sizes of a product, and the strides of a call's tensors. row_strides and batch_steps are byte strides, by pointer: loads, then
/// results.
struct Walk {
  long a_step = 0, b_step = 0, depth = 0, columns = 0;  // of ProductArguments
  int64_t batch = 1, rows = 0;
  int64_t a_batch_step = 0, b_batch_step = 0;
  Pointers pointers;
  c10::SmallVector<long, 32> row_strides, batch_steps;
};

class ProductCall final : public PointwiseFrame {
 public:
  ProductCall(const Group& group, std::shared_ptr<const CpuKernel> kernel)
      : PointwiseFrame(group, result_maker()),
        kernel_(std::move(kernel)),
        grain_(grain_of(group.body)),
        type_(group.body.product->type),
        width_(static_cast<int64_t>(c10::elementSize(type_))) {
    const std::vector<capture::ValueId> inputs = inputs_of(group);
    for (size_t i = 0; i < 2; ++i)
      factors_[i] = static_cast<size_t>(std::find(inputs.begin(), inputs.end(), group.factors[i]) - inputs.begin());
    loads_factor_ = std::any_of(factors_.begin(), factors_.end(), [&](size_t input) { return input < loads_; });
    for (size_t i = 0; i < element_sizes_.size(); ++i) widths_.push_back(is_broadcast(i) ? 0 : element_sizes_[i]);
    widths_.push_back(width_);
  }
  size_t footprint() const override { return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()); }

  // Only calls for which the kernel is faster than ATen are prepared.
  std::unique_ptr<const PreparedCall> prepare(const Step& step, Slots& slots, const capture::Env& env) const override {
    if (!may_be_prepared(step, slots)) return nullptr;
    Call call(step, slots, env, *this);
    lay_out(call);
    if (!may_be_prepared(call)) return nullptr;
    make_unread_results(call);
    std::optional<Walk> walk = walk_of(call);
    if (!walk || !is_by_kernel(call, *walk)) return nullptr;
    return std::make_unique<PreparedProduct>(*this, call, std::move(*walk));
  }

 private:
  class PreparedProduct final : public PreparedKernel {
   public:
    PreparedProduct(const ProductCall& of, const Call& call, Walk walk)
        : PreparedKernel(of.layouts_of_results(call), of.loads_, call.step.inputs.size(), of.scalars_, call.env, call.concats),
          of_(of),
          walk_(std::move(walk)) {}
    void run(char* const* addresses, const capture::Env& env) const override {
      Scalars memory;
      of_.run_product(walk_, {addresses[of_.factors_[0]], addresses[of_.factors_[1]]}, pointers_of(addresses), scalars_of(env, memory));
    }

   private:
    const ProductCall& of_;
    const Walk walk_;  // without its pointers
  };

  bool can_write_leaves(const Call& /*call*/) const override { return false; }
  // A load that is read element by element may be overwritten. A factor may not: blocks of the result are written while factors are read.
  bool may_take_input(const Call& call, size_t /*store*/) const override { return call.is_one_loop && !loads_factor_; }

  const at::Tensor& factor(const Call& call, size_t i) const { return call.slots[call.step.inputs[factors_[i]].slot]; }

  void launch(Call& call) const override {
    if (call.is_empty()) return;
    const std::optional<Walk> walk = walk_of(call);
    if (walk && is_by_kernel(call, *walk)) return run_product(call, *walk);
    run_behind_atens(call, call.results);
  }

  ProductSizes sizes_of_product(const Walk& walk) const {
    const BodyProduct& product = *group_.body.product;
    const int64_t kind = static_cast<int64_t>(type_) * 4 + (product.is_a_transposed ? 2 : 0) + (product.is_b_transposed ? 1 : 0);
    return {walk.batch, walk.rows, walk.columns, walk.depth, kind};
  }

  // Whether the kernel is faster than ATen for these sizes; measured on the first calls with similar sizes.
  bool is_by_kernel(const Call& call, const Walk& walk) const {
    const ProductSizes sizes = sizes_of_product(walk), like = class_of(sizes);
    uint64_t key = 1;
    for (const int64_t size : {like.batch, like.rows, like.columns, like.depth, like.kind})
      key = (key ^ static_cast<uint64_t>(size)) * 0x9e3779b97f4a7c15;
    key = (key & ~uint64_t{3}) | 2;
    const uint64_t known = known_.load(std::memory_order_relaxed);
    if ((known & ~uint64_t{1}) == key) return (known & 1) != 0;
    const auto choice = find_choice(sizes);
    const bool is_ours = choice ? *choice : measure(call, walk, sizes);
    known_.store(key | (is_ours ? 1 : 0), std::memory_order_relaxed);
    return is_ours;
  }

  // Measures, with results in temporary tensors. For a large product only some rows are computed, and ATen computes only the product, which
  // favours ATen.
  bool measure(const Call& call, const Walk& walk, const ProductSizes& sizes) const {
    const int64_t columns = walk.columns, of_row = std::max(walk.depth, kDepthOfLargeResults) * columns;
    const bool is_large = walk.batch * walk.rows * of_row > kMeasured;
    Walk ours = walk;
    if (is_large) {
      ours.batch = 1;
      ours.rows = std::min(walk.rows, std::max(kMeasured / of_row, kFewestRows));
    }
    std::vector<at::Tensor> results;
    for (size_t i = 0; i < call.results.size(); ++i) {
      const at::Tensor& result = call.results[i];
      results.push_back(is_large ? empty_strided_recycled({ours.rows * columns}, {1}, result.scalar_type())
                                 : empty_strided_recycled(result.sizes(), result.strides(), result.scalar_type()));
      ours.pointers[loads_ + i] = memory_of(results[i]);
    }
    at::Tensor a = factor(call, 0), b = factor(call, 1);
    if (is_large && a.dim() == 3) {
      a = a.select(0, 0);
      b = b.select(0, 0);
    }
    const auto by_aten = [&] {
      if (!is_large) return run_behind_atens(call, results);
      at::mm(a.narrow(0, 0, ours.rows), b);
    };
    return is_ours_faster(
        sizes, [&] { run_product(call, ours); }, by_aten);
  }

  // nullopt if the kernel does not support the layouts of this call's tensors.
  std::optional<Walk> walk_of(Call& call) const {
    const at::Tensor &a = factor(call, 0), &b = factor(call, 1);
    const bool is_batched = a.dim() == 3;
    if (is_lazy(a) || is_lazy(b) || call.domain.back() != b.size(-1) || reads_padded_) return std::nullopt;
    const auto step_of = [](const at::Tensor& tensor, bool is_transposed) -> std::optional<long> {
      const int64_t along = is_transposed ? tensor.stride(-2) : tensor.stride(-1),
                    inner = is_transposed ? tensor.size(-2) : tensor.size(-1);
      if (along != 1 && inner > 1) return std::nullopt;
      return is_transposed ? tensor.stride(-1) : tensor.stride(-2);
    };
    const BodyProduct& product = *group_.body.product;
    const auto a_step = step_of(a, product.is_a_transposed), b_step = step_of(b, product.is_b_transposed);
    if (!a_step || !b_step || a.size(-1) == 0) return std::nullopt;
    Walk walk{.a_step = *a_step, .b_step = *b_step, .depth = a.size(-1), .columns = b.size(-1)};
    walk.rows = a.size(-2);
    if (scratch_of(walk) > kLargestPanel) return std::nullopt;
    if (is_batched) {
      walk.batch = a.size(0);
      walk.a_batch_step = a.stride(0) * width_;
      walk.b_batch_step = b.stride(0) * width_;
    }
    for (size_t i = 0; i < loads_; ++i) {
      if (!add_load(call, i, is_batched, walk)) return std::nullopt;
    }
    for (const at::Tensor& result : call.results) {
      const int64_t row = call.domain.back() * static_cast<int64_t>(result.element_size());
      walk.pointers.push_back(memory_of(result));
      walk.row_strides.push_back(row);
      walk.batch_steps.push_back(row * walk.rows);
    }
    for (size_t i = 0; i < call.concats.parts().size(); ++i) {
      const Concats::Part& part = call.concats.parts()[i];
      if (!add(call, part.memory, part.steps, element_sizes_[loads_ + call.results.size() + i], is_batched, walk)) return std::nullopt;
    }
    return walk;
  }

  // Bytes for copied panels of b. Panels are copied if b is transposed, if its columns do not fill whole vectors of kPanelBytes / 2 (the
  // widest of any CPU), and where copying is faster.
  int64_t scratch_of(const Walk& walk) const {
    const int64_t b_step = walk.b_step * width_, depth = walk.depth, bytes_of_row = walk.columns * width_;
    if (!group_.body.product->is_b_transposed && bytes_of_row % (kPanelBytes / 2) == 0 &&
        !device::is_worth_copying(walk.rows, depth, b_step))
      return 0;
    return device::scratch_bytes(depth * kPanelBytes, (bytes_of_row + kPanelBytes - 1) / kPanelBytes);
  }

  // Returns false if the kernel does not support the load's layout. Its stride along the columns must be the compiled one, and its rows
  // must have one stride.
  bool add_load(const Call& call, size_t i, bool is_batched, Walk& walk) const {
    at::Tensor tensor = call.load(i);
    const Ints steps = byte_strides_of(tensor, group_.accesses[i], call.domain, call.env);
    if (tensor.const_data_ptr() != call.load(i).const_data_ptr()) return false;  // a copy, which would not live long enough
    return add(call, memory_of(tensor), steps, is_broadcast(i) ? 0 : element_sizes_[i], is_batched, walk);
  }

  // `width`: the stride along the columns that the kernel is compiled for.
  static bool add(const Call& call, char* memory, const Ints& steps, int64_t width, bool is_batched, Walk& walk) {
    if (call.domain.back() != 1 && steps.back() != width) return false;
    const size_t first = is_batched ? 1 : 0, last = call.domain.size() - 1;
    int64_t row_step = 0;
    bool is_first = true;
    int64_t expected = 0;
    for (size_t axis = last; axis-- > first;) {
      if (call.domain[axis] == 1) continue;
      if (is_first) row_step = steps[axis];
      if (!is_first && steps[axis] != expected) return false;
      expected = steps[axis] * call.domain[axis];
      is_first = false;
    }
    walk.pointers.push_back(memory);
    walk.row_strides.push_back(row_step);
    walk.batch_steps.push_back(is_batched ? steps[0] : 0);
    return true;
  }

  void run_product(const Call& call, const Walk& walk) const {
    run_product(walk, {memory_of(factor(call, 0)), memory_of(factor(call, 1))}, walk.pointers, call.scalars.data());
  }

  void run_product(const Walk& walk, std::array<const char*, 2> factors, const Pointers& pointers, const double* scalars) const {
    const int64_t columns = walk.columns, depth = walk.depth;
    const int64_t parts = (walk.rows + kSharedRows - 1) / kSharedRows;
    const int64_t of_part = kSharedRows * columns * depth;
    const char *const a = factors[0], *const b = factors[1];
    run_ranges(walk.batch * parts, std::max<int64_t>(1, kGrainOfProduct / std::max<int64_t>(of_part, 1)), [&](int64_t first, int64_t last) {
      const Scratch scratch(scratch_of(walk));
      while (first < last) {
        const int64_t item = first / parts, begin = first % parts, end = std::min(parts, begin + last - first);
        Pointers at(pointers.begin(), pointers.end());
        for (size_t i = 0; i < at.size(); ++i) at[i] += item * walk.batch_steps[i];
        kernel_->product({.blocks = kernel_->product_blocks,
                          .a = a + item * walk.a_batch_step,
                          .b = b + item * walk.b_batch_step,
                          .a_step = walk.a_step,
                          .b_step = walk.b_step,
                          .depth = walk.depth,
                          .columns = walk.columns,
                          .begin = begin * kSharedRows,
                          .end = std::min(end * kSharedRows, walk.rows),
                          .pointers = at.data(),
                          .row_strides = walk.row_strides.data(),
                          .scalars = scalars,
                          .scratch = scratch.memory()});
        first += end - begin;
      }
    });
  }

  /// Copied panels of b.
  class Scratch {
   public:
    explicit Scratch(int64_t bytes) {
      if (bytes > static_cast<int64_t>(small_.size())) large_ = empty_strided_recycled({bytes}, {1}, at::kByte);
    }
    char* memory() const { return large_.defined() ? memory_of(large_) : const_cast<char*>(small_.data()); }

   private:
    alignas(64) std::array<char, 1 << 15> small_;
    at::Tensor large_;
  };

  // ATen computes the product, then a kernel the rest of the body. A product alone, or with its bias, is one op of ATen.
  void run_behind_atens(const Call& call, c10::ArrayRef<at::Tensor> results) const {
    const at::Tensor &a = factor(call, 0), &b = factor(call, 1);
    const bool is_batched = a.dim() == 3, has_one_result = results.size() == 1 && group_.concats.empty();
    at::Tensor result = has_one_result ? results[0] : at::Tensor();
    if (group_.body.ops.empty() && has_one_result) {
      is_batched ? at::bmm_out(result, a, b) : at::mm_out(result, a, b);
    } else if (group_.members.size() == 1 && group_.views.empty() && loads_ == 1 && has_one_result) {
      at::addmm_out(result, call.load(0), a, b);
    } else {
      run_behind(call, (is_batched ? at::bmm(a, b) : at::mm(a, b)).contiguous(), results);
    }
  }

  void run_behind(const Call& call, const at::Tensor& product, c10::ArrayRef<at::Tensor> results) const {
    const Nest nest = nest_of(call, results, &product);
    cpu::run_nest(kernel_->dense, nest.loops, nest.pointers, widths_, call.scalars.data(), grain_);
  }

  const std::shared_ptr<const CpuKernel> kernel_;
  const int64_t grain_;
  const at::ScalarType type_;
  const int64_t width_;
  std::array<size_t, 2> factors_{};  // indices into the step's inputs
  bool loads_factor_ = false;
  std::vector<int64_t> widths_;              // as in KernelCall, then the product's
  mutable std::atomic<uint64_t> known_ = 0;  // the last answer: a hash of the class of sizes; the lowest bit is 1 if the kernel is faster
};

}  // namespace

std::unique_ptr<const OpCall> make_product_call(const Group& group, std::shared_ptr<const CpuKernel> kernel) {
  return std::make_unique<ProductCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen::cpu
