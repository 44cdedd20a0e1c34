#pragma once
// The words of a row kernel that make one number of many: first what one thread has, then over the threads of the row
// (codegen/device/threads.h).

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cuda {

class ReductionText {
 public:
  explicit ReductionText(const Body& body);

  /// `float v0 = 0;`: before the first element. Of a pair (Welford's, a softmax's) the op that stands first has the accumulator.
  std::string begin(size_t op) const;
  /// Around the elements of one vector: `kVector` of them, of number j.
  std::string begin_vector(size_t op) const;
  std::string element(size_t op) const;
  std::string end_vector(size_t op) const;
  /// Over the threads of the row.
  std::string end(size_t op) const;
  /// Adds a number of a segment, which all threads know.
  std::string add_number(size_t op) const;
  /// Of numbers of a row that all threads have: the names of a pair.
  std::string end_numbers(size_t op) const;

  /// What one thread, or all of a row, has: its name and type. Of a pair the op that stands first has it.
  bool is_leader(size_t op) const { return leader_of_pair(body_, op) == op; }
  std::string accumulator(size_t op) const;
  std::string type_of_number(size_t op) const;
  std::string type_of_number(Reduction::Kind kind) const;

  /// `Adds<float>()`.
  std::string combine(Reduction::Kind kind) const;
  /// Of no numbers.
  std::string neutral(Reduction::Kind kind) const;
  /// `maximum<float>(a, b)`; of sums, maxima and minima.
  std::string combined(Reduction::Kind kind, const std::string& a, const std::string& b) const;

 private:
  bool is_of_pair(size_t op) const;

  const Body& body_;
  const std::string type_;
};

}  // namespace hindcast::codegen::cuda
