#include "codegen/cpu/cost_model.h"

#include "codegen/fuse/body.h"

#include <algorithm>

namespace hindcast::codegen::cpu {
namespace {

// Elements. Up to this size, a kernel's call costs more than its work, in any case.
constexpr int64_t kSmall = 4096;

constexpr KernelLimits kLimits = {
    // More ops spill registers and take long to compile; more tensors exceed the hardware's prefetch streams.
    .members = 48,
    .loads = 40,
    // Large tensors are often at addresses that map to the same cache sets.
    .loads_of_large = 12,
    .large_bytes = 1 << 20,
    // The stock engine computes leaf gradients one at a time: a kernel that computes several must not raise peak memory. (Four large
    // gradients of one kernel would all be alive at the end anyway.)
    .kept_bytes = 1 << 20,
    // Operands that are added immediately are still in the L1 cache, and the next one is computed in the same memory.
    .waiting_bytes = 1 << 15,
    // Small values stay in a cache, so reading them again is cheap.
    .leaf_bytes = 1 << 20,
};

constexpr ReuseLimits kReuseLimits = {.of_one = 1 << 20, .of_all = 16 << 20};

class CpuCostModel final : public CostModel {
 public:
  c10::DeviceType device() const override { return c10::kCPU; }
  const KernelLimits& limits() const override { return kLimits; }
  const ReuseLimits& reuse_limits() const override { return kReuseLimits; }

  bool is_call_bound(int64_t numel) const override { return numel <= kSmall; }
  // The kernel would read more tensors at the same time than the CPU's prefetchers can follow.
  bool is_read_worth_sharing(int64_t /*bytes*/) const override { return false; }

  bool is_worth_it(const RowShape& rows) const override {
    // A row is summed by one thread.
    constexpr int64_t kLongRow = 1 << 16;
    // Contiguous runs that fill only a few vectors, in a row or a norm that does not stay in a cache: ATen makes one pass fewer.
    constexpr int64_t kFewVectors = 64, kCachedRow = 4096, kLargeNorm = 1 << 15;
    // Kernels vectorise over short rows only if these are contiguous.
    const bool is_split = rows.row < kShortRow && rows.neighbours < rows.row;
    const bool is_for_one_thread = rows.row > kLongRow && rows.row * 8 > rows.numel;
    if (!is_call_bound(rows.numel) && (is_split || is_for_one_thread)) return false;
    const bool is_large = rows.row > kCachedRow || (rows.is_row_op && rows.numel > kLargeNorm);
    return !is_large || rows.neighbours >= std::min(rows.row, kFewVectors) || rows.neighbours % kShortRow != 0;
  }

  // ATen processes segments that fill its vectors as fast as a kernel, which has more overhead per segment. For other segments, a kernel
  // processes the remainder element by element, which is slow if the remainder is a large part of the segment or elements are converted.
  // Small norms are faster in one kernel in any case.
  bool is_worth_it(const SegmentedNorm& norm) const override {
    constexpr int64_t kLong = 64, kVector = 8, kFew = 32768;
    const int64_t rest = norm.segment % kVector;
    if (!norm.has_weight || norm.segment >= kLong || norm.numel <= kFew) return true;
    if (is_of_16_bits(norm.type)) return false;
    return norm.segment < kVector || (rest != 0 && rest * 6 <= norm.segment);
  }

  // A kernel is faster for norms, where ATen makes more passes over memory; for large results, whose memory can be recycled; and for padded
  // operands, which ATen would write only for this op.
  bool is_worth_it(const SingleOp& op) const override {
    // A kernel's call takes a third of the time of ATen's.
    constexpr int64_t kTiny = 1024, kSmallSum = 16384;
    if (op.numel != 0 && ((op.is_pointwise && op.numel <= kTiny) || (op.is_reduction && op.numel <= kSmallSum))) return true;
    // ATen works row by row, whose vectors short rows do not fill.
    if ((op.forward != RowForward::None || op.is_reduction) && op.row < kShortRow) return true;
    if (op.forward != RowForward::None && !op.reads_padded) return is_slow_in_aten(op);
    return op.is_row_op || (op.is_pointwise && (op.reads_padded || op.bytes >= kLimits.large_bytes));
  }

  // For 16-bit floats, LibTorch's library uses instructions that kernels do not. It rounds longer sums less on some of Intel's CPUs.
  bool is_worth_it(const ProductShape& product) const override {
    constexpr int64_t kLongestSum = 4096;
    return product.depth <= kLongestSum && (product.type == at::kFloat || product.type == at::kDouble) &&
           product.batch * product.rows * product.columns * product.depth != 0;
  }

  // Reading zeros costs as much as reading other elements: at least half of the elements must be the tensor's.
  bool is_padding_read_through(int64_t numel, int64_t padded) const override { return 2 * numel >= padded; }

  // A kernel's call for a shorter piece costs more than ATen's copy of it.
  bool is_concat_written_in_place(int64_t piece) const override {
    constexpr int64_t kShortPiece = 16;
    return piece >= kShortPiece;
  }

  bool checks_indices() const override { return true; }
  // Repeating them (loop_nest.h) costs less than calling the kernel once per row.
  bool repeats_numbers_of_rows() const override { return true; }
  bool joins_numbers_of_rows() const override { return true; }
  bool keeps_small_groups_open() const override { return true; }

  // Smaller memory is allocated as fast as it is taken over.
  bool is_memory_worth_taking(int64_t bytes) const override { return bytes >= 1 << 16; }

  // The code for far angles is long and rarely runs: many copies of it would only take time to compile.
  bool are_far_angles_inlined(size_t functors) const override { return functors <= 2; }

 private:
  // ATen makes as many passes over a row of a norm or a softmax as a kernel. It converts 16-bit elements in each pass, except for a
  // softmax. It composes logsumexp of several ops, which for short rows costs less than a kernel's overhead per row.
  static bool is_slow_in_aten(const SingleOp& op) {
    constexpr int64_t kWorthAStart = 256;
    const bool is_converted = is_of_16_bits(op.type);
    switch (op.forward) {
      case RowForward::Norm:
      case RowForward::LogSoftmax:
        return is_converted;
      case RowForward::LogSumExp:
        return op.row >= kWorthAStart;
      case RowForward::Softmax:
      case RowForward::None:
        return false;
    }
    return false;
  }
};

constinit const CpuCostModel kCostModel{};

}  // namespace

const CostModel& cost_model() { return kCostModel; }

bool are_nontemporal_stores_worth_it(int64_t bytes) { return bytes >= int64_t{32} << 20; }

}  // namespace hindcast::codegen::cpu
