#include "codegen/cuda/cost_model.h"

#include "codegen/cuda/machine.h"

#include <algorithm>

namespace hindcast::codegen::cuda {
namespace {

// Elements. Up to here a kernel's launch costs more than its work.
constexpr int64_t kSmall = 1 << 18;

constexpr KernelLimits kLimits = {
    // A kernel of more ops takes long to compile; one of more tensors leaves too few registers for accesses in flight.
    .members = 48,
    .loads = 40,
    .loads_of_large = 16,
    .large_bytes = 1 << 20,
    // As on the CPU: a kernel that makes several gradients of leaves must not raise the peak of memory.
    .kept_bytes = 1 << 20,
    // Operands that are added at once are still in the card's cache.
    .waiting_bytes = 1 << 20,
    // To write to a leaf in the kernel costs no launch more.
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
    // What lies apart in memory is copied first.
    constexpr int64_t kFewNeighbours = 8;
    return rows.neighbours >= std::min(rows.row, kFewNeighbours);
  }

  // The threads of a row go over one segment at a time.
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

  // Shorter pieces waste most of each access of memory.
  bool is_concat_written_in_place(int64_t piece) const override { return piece >= 8; }

  // Memory belongs to the stream that it was allocated on, which need not be the backward's: when a result in it went, the other stream
  // could use it again too early. And LibTorch's allocator has new memory as fast.
  bool is_memory_worth_taking(int64_t /*bytes*/) const override { return false; }

  // A branch goes around the code for far angles.
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
