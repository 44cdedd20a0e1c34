#pragma once

/// One collector per node class that LibTorch generates, written at build time by
/// scripts/generate_collectors.py from LibTorch's own generated/Functions.h.
///
/// LibTorch's visitor (Node::compiled_args) costs a 1,024-byte malloc per node and hash maps per
/// tensor. A typed collector reads the public members of the class and hands each to a FieldSink, and
/// it knows their names, so that a cache miss can say which one differed.
///
/// Order. Field k of a class is element k + 1 of the packed list that Node::apply_with_saved hands to
/// PyCompilerInterface::call_function (element 0 is needs_input_grad; a class with retain_variables
/// packs it last). Fields are therefore: the sizes of tensor-list arguments (`X_size`), then the saved
/// values in the order of the header, which is the order of compiled_args. compiled_args skips the
/// list sizes; we do not, because two lists of 1 + 2 and of 2 + 1 tensors are different formulas.
/// tests/capture/typed_collectors_test.cpp checks all of this against LibTorch itself.

#include <cstddef>
#include <cstdint>
#include <span>
#include <typeinfo>

#include <torch/csrc/autograd/function.h>

namespace hindcast::capture {

class FieldSink;

struct TypedCollector {
  const std::type_info* type;
  const char* name;  // as in Node::name()
  void (*collect)(const torch::autograd::Node& node, FieldSink& sink);
  const char* const* fields;  // in the order of collection; nullptr for a class without fields
  uint32_t field_count;
  // Prefetches what the fields point to; nullptr if they point nowhere. Hold the node's mutex.
  void (*prefetch)(const torch::autograd::Node& node);
};

/// The collector of a node's dynamic type; nullptr if the class has no collector (AccumulateGrad, CopySlices, custom
/// functions, a class with a member type that the generator does not know): use LibTorch's visitor.
/// A few ns, hit or miss, without a lock. Call it from any thread.
const TypedCollector* find_typed_collector(const torch::autograd::Node& node);

/// All collectors, in the order of the header, one block per generated file.
std::span<const std::span<const TypedCollector>> typed_collectors();

}  // namespace hindcast::capture
