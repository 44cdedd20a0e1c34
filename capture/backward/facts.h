#pragma once
// A *fact* is one int64 that a variant's guards compare before anything runs: a size, a tensor's meta word, the bits of a scalar. The key
// holds the structure, the facts hold the values; another structure is another graph, other facts are another variant of the same graph (or
// a dynamic size).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::capture {

using Facts = std::vector<int64_t>;

enum class FactKind : uint8_t {
  TensorMeta,    // rank, dtype, device, layout class and flags of a tensor, packed in one word
  TensorSize,    // one size of a saved tensor
  TensorStride,  // permutation code, or one exact stride of a tensor that is neither dense nor expanded
  InputSize,     // one size in a node's input metadata
  SavedSize,     // one SymInt field of a node
  FloatScalar,   // bits of a double field; may be lifted
  ExactScalar,   // bits of any other scalar field
};

/// Where a fact came from. Only made on a miss.
struct FactOrigin {
  FactKind kind;
  uint32_t call;   // index into Collected::calls; kRootGradient for a gradient given to backward()
  uint32_t field;  // index of the node's field, or of its input for InputSize
  uint32_t dim;    // dimension, where there is one
};
inline constexpr uint32_t kRootGradient = 0xffffffffu;

inline bool can_be_dynamic(FactKind kind) {
  return kind == FactKind::TensorSize || kind == FactKind::InputSize || kind == FactKind::SavedSize || kind == FactKind::FloatScalar;
}

/// Layout classes of a strided tensor, as the guards see them.
enum class StrideClass : uint8_t { Contiguous, Permuted, Exact };

/// Appends the facts of `tensor` (0 when undefined): meta word, sizes, and for a tensor that is not contiguous one
/// permutation code (dense up to order and stride-0 dimensions) or its exact strides.
/// `origins`, when given, gets one entry per fact.
void append_tensor_facts(const at::Tensor& tensor, Facts& facts, std::vector<FactOrigin>* origins = nullptr, FactOrigin origin = {});

/// False for tensors that the recorder does not look into: sparse, quantized, nested, subclasses, functorch wrappers.
bool is_plain(const at::Tensor& tensor);

/// Says in words how two meta words (or stride facts) differ, e.g. "dtype Float -> Double".
std::string describe_change(FactKind kind, int64_t before, int64_t after);

}  // namespace hindcast::capture
