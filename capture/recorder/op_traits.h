#pragma once
// What the recorder must know of an op, read once from its schema.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hindcast::capture {

/// Why an op is more than "tensors in, new tensors out". In the order in which a refusal names them.
enum class OpTrait : uint8_t { DependsOnData, ChangesGeometry, DrawsRandomNumbers, WritesToSeveral, ReturnsNoTensor };

/// "draws random numbers"
const char* describe(OpTrait trait);
/// What to write in a function in its place: a sentence behind the description, or nothing.
const char* advise(OpTrait trait);

struct OpTraits {
  bool composite = false;                   // decomposes into other ops
  std::optional<c10::OperatorHandle> view;  // of one that makes a view of its argument in place: the op that returns the view
  std::vector<OpTrait> unusual;
  std::vector<uint32_t> written;  // arguments that it writes

  bool draws_random_numbers() const;
};

const OpTraits& traits_of(const c10::OperatorHandle& op);

/// Indexing is declared to depend on the data for the sake of masks; with numbers the op does not.
bool is_mask(const std::optional<at::Tensor>& index);
bool indexes_by_numbers(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs);

}  // namespace hindcast::capture
