#pragma once

#include <string>
#include <vector>

#include "tests/whole/ops/expr.h"

/// The text files of this folder: fields between bars, one row per line, '#' at a line's start is a comment.
namespace hindcast::tests::ops {

/// One case of `ops.table`: `NodeClass | aten::op.overload | arguments | options`.
///
/// Options, separated by spaces: `f32 f64 c64 bf16` the dtypes that f() stands for (without any: f32 and f64);
/// `plain` only contiguous operands (the op itself is wrong for others); `finite` no NaN among the operands;
/// `raises` the backward is an error, to be raised alike; `uneven` sizes depend on values, so new values need not be a hit;
/// `opaque` the node runs as an opaque step, for the reason that `opaque.table` gives for its class;
/// `stock` the whole backward is left to the stock engine;
/// `only2.11` in other releases of LibTorch the op is gone, or another option is true: the row is left out.
struct Row {
  int line = 0;
  std::string text;
  std::string node;
  std::string op;
  std::vector<Expr> arguments;
  std::vector<std::string> dtypes;
  bool plain = false;
  bool finite = false;
  bool raises = false;
  bool uneven = false;
  bool opaque = false;
  bool stock = false;
  bool only_2_11 = false;
};

/// `ClassName | reason`: of `not_covered.table` and `opaque.table`.
struct Excuse {
  int line = 0;
  std::string node;
  std::string reason;
};

/// Both throw std::invalid_argument, with the file and the line, on what they cannot read.
std::vector<Row> read_rows(const std::string& path);
std::vector<Excuse> read_excuses(const std::string& path);

/// A file of this folder.
std::string table_path(const std::string& name);

}  // namespace hindcast::tests::ops
