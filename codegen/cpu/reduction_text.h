#pragma once
// The lines of a row kernel that make one number of many. A sum goes on in the loop over elements itself. For any other kind the loop
// stores a block of values, which stay in the innermost cache, and a function of the device library (codegen/device/reductions.h)
// reduces the block in vectors.

#include "codegen/fuse/body.h"

#include <string>
#include <vector>

namespace hindcast::codegen::cpu {

class ReductionText {
 public:
  explicit ReductionText(const Body& body);

  /// Of an op: before the first element, around a block of elements, behind the last. Empty where there is nothing to do.
  std::string begin(size_t op) const;
  std::string begin_block(size_t op) const;
  std::string end_block(size_t op) const;
  std::string end(size_t op) const;
  /// Lines for element i of a block that starts at `begin`.
  std::string element(size_t op) const;
  /// A line that adds one number of a segment.
  std::string add_number(size_t op) const;
  /// Sum, Max, Min: the expression.
  std::string combined(Reduction::Kind kind, const std::string& a, const std::string& b) const;
  /// Lines that add element i of a row to a store over rows.
  std::string column(size_t store) const;

 private:
  bool is_moments(size_t op) const;

  const Body& body_;
  const std::string type_;
  std::vector<std::string_view> parts_ = {""};  // of a number
};

}  // namespace hindcast::codegen::cpu
