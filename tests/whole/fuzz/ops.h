#pragma once
// The table of operators. A row is one C++ expression, compiled for the interpreter and kept as text for the printer.

#include <string>
#include <string_view>
#include <vector>

#include "tests/whole/fuzz/runtime.h"

namespace hindcast::tests::fuzz {

/// The words of the expressions.
struct Operands {
  const at::Tensor& a;
  const at::Tensor& b;
  const at::Tensor& c;
  int64_t i, j, k;  // dimensions, indices, counts: the rule decides which
  double s;         // a scalar that may change from step to step
  int64_t n;        // the step's number
  at::IntArrayRef sizes;
  Log& log;
  const std::string& name;  // of a, for hooks
};

/// A row's operands and results: all that the generator knows about it.
enum class Rule {
  Same,         // the shape of a
  AlongDim,     // the shape of a; i is a dimension
  LastDims,     // the shape of a; sizes is its last, fixed dimension
  Matrix,       // the shape of a, which has two dimensions or more
  Pair,         // two results like a
  ToReal,       // the shape of a; complex to real
  Cast,         // the shape of a; k is a dtype
  Detach,       // the shape of a
  Broadcast,    // of a and b
  LikeBoth,     // a and b have one shape and dtype
  Total,        // no dimensions
  TotalOfBoth,  // no dimensions; a and b have one shape and dtype
  Classes,      // no dimensions; a is N x C
  DropDim,      // without dimension i
  KeepDim,      // dimension i is 1
  Transpose,    // dimensions i and j change places
  MoveDim,      // dimension i moves to j
  Unsqueeze,    // a new dimension i
  Squeeze,      // without dimension i, which is 1
  Select,       // without dimension i; j is an index
  Slice,        // dimension i from j to k
  EverySecond,  // dimension i from 0 to k by 2
  Expand,       // sizes
  View,         // sizes; a is contiguous
  Reshape,      // sizes
  Pick,         // dimension i becomes j
  PickFirst,    // dimension 0 becomes j
  Unbind,       // all of dimension i
  Split,        // dimension i in pieces of j
  Cat,          // along i
  Stack,        // a new dimension i
  Mm,           // two matrices
  Gram,         // a of B x n x k with itself: B x n x n
  Linear,       // a with the weight b
  LinearBias,   // and the bias c
  MatMul,       // any a, a matrix b
  Conv,         // a of N x C x L with the weight b
  WriteSelf,    // statement: writes a
  WriteFrom,    // statement: writes a, b broadcasts to it
  WriteRows,    // statement: writes a, b has its shape
  Hook,         // statement
  LeafHook,     // statement
};

enum Trait : unsigned {
  kReal = 0,
  kComplex = 1,    // takes complex operands too
  kNoHalf = 2,     // not with bfloat16
  kView = 4,       // the result may share memory with a
  kManyViews = 8,  // views that refuse to be written
  kSavesNothing = 16,
  kSavesResult = 32,
  kKeepsLayout = 64,  // contiguous operands, contiguous result
  kRetains = 128,
};

using Results = std::vector<at::Tensor>;

struct Op {
  const char* text;
  Rule rule;
  unsigned traits;
  int weight;  // how often generate() takes it
  Results (*run)(const Operands&);
  bool many;  // the expression is a list of results
};

const std::vector<Op>& ops();
inline const Op& op(int index) { return ops()[static_cast<size_t>(index)]; }
/// By its text; throws std::invalid_argument for one that is not there.
int find_op(std::string_view text);

bool is_statement(Rule rule);

}  // namespace hindcast::tests::fuzz
