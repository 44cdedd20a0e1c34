#pragma once
// What the tables of pointwise ops, of real and of complex numbers, are written with.

#include "codegen/fuse/pointwise_ops.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hindcast::codegen {

/// By an operator's name and overload, as "aten::add.Tensor".
using PointwiseTable = std::unordered_map<std::string, PointwiseOp>;

/// Null: not in the table.
const PointwiseOp* find(const PointwiseTable& table, const c10::OperatorName& name);

/// A number that is no part of the kernel's arguments, and is `value`.
bool is_number(const capture::Arg& arg, double value);

/// A tensor's element or a number, as the argument is.
Operand operand(BodyBuilder& body, const capture::Arg& arg);

/// function(args[0], ..., args[count - 1]).
PointwiseOp same_args(std::string_view function, size_t count);

/// where(args[1], args[2], args[0]).
PointwiseOp masked_fill();

/// The same with bools allowed as these arguments.
PointwiseOp with_masks(PointwiseOp op, uint32_t mask_args);

/// The same with a bool as its result.
PointwiseOp gives_mask(PointwiseOp op);

}  // namespace hindcast::codegen
