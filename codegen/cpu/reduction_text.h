#pragma once
// The source text of reductions in a row kernel. A sum accumulates in the loop over elements itself. For any other kind the loop stores a
// block of values, which stay in the L1 cache, and a function of the device library (codegen/device/reductions.h) reduces the block with
// vector instructions.

#include "codegen/fuse/body.h"

#include <string>
#include <vector>

namespace hindcast::codegen::cpu {

class ReductionText {
 public:
  explicit ReductionText(const Body& body);

  /// Lines for an op: before the first element, before and after a block of elements, after the last element. May be empty.
  std::string begin(size_t op) const;
  std::string begin_block(size_t op) const;
  std::string end_block(size_t op) const;
  std::string end(size_t op) const;
  /// Lines for element i of a block that starts at `begin`.
  std::string element(size_t op) const;
  /// A line that adds the number of one segment.
  std::string add_number(size_t op) const;
  /// Sum, Max, Min: the expression.
  std::string combined(Reduction::Kind kind, const std::string& a, const std::string& b) const;
  /// Lines that add element i of a row to a store over rows.
  std::string column(size_t store) const;

 private:
  bool is_moments(size_t op) const;

  const Body& body_;
  const std::string type_;
  std::vector<std::string_view> parts_ = {""};  // suffixes of a number's parts: one, or two for complex numbers
};

}  // namespace hindcast::codegen::cpu
