#include "codegen/cuda/cost_model.h"

#include "codegen/cuda/machine.h"

#include <algorithm>

namespace hindcast::codegen::cuda {
namespace {

// Elements. Up to this size, a kernel's launch costs more than its work.
constexpr int64_t kSmall = 1 << 18;

constexpr KernelLimits kLimits = {
    // More ops take long to compile; more tensors leave too few registers for accesses in flight.
    .members = 48,
    .loads = 40,
    .loads_of_large = 16,
    .large_bytes = 1 << 20,
    // As on the CPU: a kernel that computes several leaf gradients must not raise peak memory.
    .kept_bytes = 1 << 20,
    // Operands that are added immediately are still in the L2 cache.
    .waiting_bytes = 1 << 20,
    // Writing to a leaf in the kernel saves a launch.
    .leaf_bytes = 0,
};

constexpr ReuseLimits kReuseLimits = {.of_one = 1 << 20, .of_all = 16 << 20};

class CudaCostModel final : public CostModel {
 public:
  constexpr explicit CudaCostModel(c10::DeviceType device) : device_(device) {}
  c10::DeviceType device() const override { return device_; }
  const KernelLimits& limits() const override { return kLimits; }
  const ReuseLimits& reuse_limits() const override { return kReuseLimits; }

  bool is_call_bound(int64_t numel) const override { return numel <= kSmall; }
  bool is_read_worth_sharing(int64_t bytes) const override { return bytes >= kLimits.large_bytes; }

  bool is_worth_it(const RowShape& rows) const override {
    // Rows that are not contiguous are copied first.
    constexpr int64_t kFewNeighbours = 8;
    return rows.neighbours >= std::min(rows.row, kFewNeighbours);
  }

  // The threads of a row process one segment at a time.
  bool is_worth_it(const SegmentedNorm& norm) const override {
    constexpr int64_t kShort = 32;
    return norm.segment >= kShort || is_call_bound(norm.numel);
  }

  // A single pointwise op gains nothing, nor does a norm's forward.
  bool is_worth_it(const ProductShape& /*product*/) const override { return false; }
  bool is_worth_it(const SingleOp& op) const override {
    if (op.forward != RowForward::None) return op.reads_padded;
    return op.is_row_op || (op.is_pointwise && op.reads_padded);
  }

  bool is_padding_read_through(int64_t numel, int64_t padded) const override { return 2 * numel >= padded; }

  // Shorter pieces waste most of each memory access.
  bool is_concat_written_in_place(int64_t piece) const override { return piece >= 8; }

  // The last three are not measured on a card.
  bool checks_indices() const override { return false; }
  bool repeats_numbers_of_rows() const override { return false; }
  bool joins_numbers_of_rows() const override { return false; }
  bool keeps_small_groups_open() const override { return false; }

  // Memory belongs to the stream that it was allocated on, which may differ from the backward's: after a result in it is freed, the other
  // stream could reuse it too early. And LibTorch's allocator provides new memory equally fast.
  bool is_memory_worth_taking(int64_t /*bytes*/) const override { return false; }

  // A branch skips the code for far angles.
  bool are_far_angles_inlined(size_t /*functors*/) const override { return true; }

 private:
  const c10::DeviceType device_;
};

constinit const CudaCostModel kOfCard{c10::kCUDA};

}  // namespace

const CostModel& cost_model() {
  const Machine* const installed = installed_machine();
  if (installed == nullptr || installed->device() == c10::kCUDA) return kOfCard;
  if (installed->costs() != nullptr) return *installed->costs();
  static const CudaCostModel of_card_in_tests(installed->device());
  return of_card_in_tests;
}

}  // namespace hindcast::codegen::cuda
