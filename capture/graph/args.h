#pragma once
// Builds and tests arguments of ATen calls.

#include "hindcast/graph.h"

#include <utility>

namespace hindcast::capture {

inline Arg constant(c10::IValue value) { return {.constant = std::move(value)}; }
inline Arg tensor(ValueId value) { return {.kind = Arg::Kind::Value, .values = {value}}; }

inline bool is_tensor(const Arg& arg) { return arg.kind == Arg::Kind::Value && arg.values[0].defined(); }
inline bool is_bool(const Arg& arg) { return arg.kind == Arg::Kind::Constant && arg.constant.isBool(); }
inline bool is_true(const Arg& arg) { return is_bool(arg) && arg.constant.toBool(); }

}  // namespace hindcast::capture
