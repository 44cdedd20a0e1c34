#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

/// All that may change from one run of a row to the next. Runs that differ only in the first group share one graph.
namespace hindcast::tests::ops {

/// The memory layout of the operands. The last two put a view between the leaf and the operand.
enum class Operands { Contiguous, Transposed, Expanded, Sliced, ChannelsLast, Conjugated, Negated, TransposeOfLeaf, ExpandOfLeaf };

enum class Values { Random, ZerosAndNaN };

/// What the backward starts from: the sum of all weighted outputs, or a gradient handed in for each output.
enum class Root { Loss, Contiguous, Transposed, Expanded, Sliced, ChannelsLast, Conjugated, Zeros, NaN };

enum class Outputs { All, First, Last };

enum class Hooks { None, OnLeafAndOutput, RetainGrad };

struct Setting {
  uint64_t seed = 1;
  int64_t n = 3;
  Operands operands = Operands::Contiguous;
  Values values = Values::Random;
  Root root = Root::Loss;
  bool grads_before = false;  // the leaves have a .grad already, to be added to

  c10::ScalarType dtype = c10::ScalarType::Float;
  Outputs outputs = Outputs::All;
  Hooks hooks = Hooks::None;
  std::optional<size_t> only_leaf;    // the others do not require grad
  std::optional<size_t> only_wanted;  // torch::autograd::grad of this leaf instead of backward
};

std::string describe(const Setting& setting);

}  // namespace hindcast::tests::ops
