#pragma once
// The source text of reductions in a row kernel: first within one thread, then over the threads of the row (codegen/device/threads.h).

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cuda {

class ReductionText {
 public:
  explicit ReductionText(const Body& body);

  /// `float v0 = 0;`: before the first element. The first op of a pair (Welford's, a softmax's) has the accumulator.
  std::string begin(size_t op) const;
  /// Before, for each, and after the elements of one vector: `kVector` elements, with index j.
  std::string begin_vector(size_t op) const;
  std::string element(size_t op) const;
  std::string end_vector(size_t op) const;
  /// Combines over the threads of the row.
  std::string end(size_t op) const;
  /// Adds the number of a segment, which all threads have.
  std::string add_number(size_t op) const;
  /// After add_number(), when all threads have the row's number: unpacks a pair into its two names.
  std::string end_numbers(size_t op) const;

  /// The accumulator of a thread or a row: its name and type. The first op of a pair has it.
  bool is_leader(size_t op) const { return leader_of_pair(body_, op) == op; }
  std::string accumulator(size_t op) const;
  std::string type_of_number(size_t op) const;
  std::string type_of_number(Reduction::Kind kind) const;

  /// `Adds<float>()`.
  std::string combine(Reduction::Kind kind) const;
  /// The reduction of no numbers.
  std::string neutral(Reduction::Kind kind) const;
  /// `maximum<float>(a, b)`; for sums, maxima and minima.
  std::string combined(Reduction::Kind kind, const std::string& a, const std::string& b) const;

 private:
  bool is_of_pair(size_t op) const;

  const Body& body_;
  const std::string type_;
};

}  // namespace hindcast::codegen::cuda
