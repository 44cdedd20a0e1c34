#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The small language in which `ops.table` writes arguments, as a tree; `arguments.h` says what the words mean.
///
///     f(N, 4), [1], keepdim=true, "mean", 2*N + 1, aten::tril(f(N, 4), -1), aten::sort(f(N))#1
namespace hindcast::tests::ops {

struct Expr {
  enum class Kind { Integer, Real, Text, Word, List, Call };
  Kind kind = Kind::Word;
  int64_t integer = 0;
  double real = 0;
  std::string word;         // a word, a text, or a call's function: `f`, `aten::tril`, or one of + - *
  std::string keyword;      // `keepdim` in `keepdim=true`
  std::vector<Expr> items;  // of a list or a call
  int output = 0;           // which result of the call: the 1 of `aten::sort(x)#1`
};

/// Throws std::invalid_argument with the position that could not be parsed.
std::vector<Expr> parse_arguments(std::string_view text);

/// Whether the word stands anywhere in these arguments.
bool mentions(const std::vector<Expr>& arguments, std::string_view word);

}  // namespace hindcast::tests::ops
