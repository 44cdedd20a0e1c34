#pragma once
// What the recorder must know about an op, read once from its schema.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hindcast::capture {

/// Why an op is more than "tensors in, new tensors out", in the order in which a refusal names the reasons.
enum class OpTrait : uint8_t { DependsOnData, ChangesGeometry, DrawsRandomNumbers, WritesToSeveral, ReturnsNoTensor };

/// "draws random numbers"
const char* describe(OpTrait trait);
/// What to write in a function instead: a sentence after the description, or empty.
const char* advise(OpTrait trait);

struct OpTraits {
  bool composite = false;                   // decomposes into other ops
  std::optional<c10::OperatorHandle> view;  // for an op that makes its argument a view in place: the op that returns the view
  std::vector<OpTrait> unusual;
  std::vector<uint32_t> written;  // arguments that it writes
  bool takes_storage = false;     // as_strided: a view of the argument's storage rather than of the argument

  bool draws_random_numbers() const;
};

const OpTraits& traits_of(const c10::OperatorHandle& op);

/// Whether an index is a mask. Indexing is declared to depend on data because of masks; with numbers it does not.
bool is_mask(const std::optional<at::Tensor>& index);
bool indexes_by_numbers(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs);

}  // namespace hindcast::capture
