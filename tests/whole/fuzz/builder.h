#pragma once
// A program under construction, and what the generator must know of its values to stay legal: which share memory, what a node has saved,
// what must not be written.

#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "tests/whole/fuzz/ops.h"
#include "tests/whole/fuzz/program.h"
#include "tests/whole/fuzz/random.h"

namespace hindcast::tests::fuzz {

struct Value {
  bool requires_grad = false;
  bool leaf = false;
  bool contiguous = false;
  bool view = false;
  bool overlaps = false;        ///< expanded: two elements in one place
  bool refuses_writes = false;  ///< a view of several outputs
  bool used = false;
  int storage = 0;
};

struct Storage {
  bool fixed = false;  ///< a leaf that requires grad or lives on, or one with views of several outputs: never written
  bool saved = false;  ///< written, it would make a backward throw
};

std::optional<Shape> broadcast(const Shape& a, const Shape& b);

/// Few elements, and at most two dimensions with the batch.
bool is_small(const Shape& shape);

class Builder {
 public:
  Builder(Program& program, Random& random, bool reckless) : program_(program), random_(random), reckless_(reckless) {}

  int count() const { return static_cast<int>(values_.size()); }
  const Type& type(int value) const { return program_.types[value]; }
  const Shape& shape(int value) const { return program_.types[value].shape; }
  const Value& value(int value) const { return values_[value]; }

  int add_leaf(const Shape& shape, at::ScalarType dtype, std::optional<bool> requires_grad = std::nullopt);

  /// Adds an instruction with the given results and updates the bookkeeping. Returns its first result.
  int add(Instr instr, const std::vector<Type>& results);

  bool may_write(int value) const;

  /// Any value that fits, later ones more often; -1 for none.
  int find(const std::function<bool(int)>& fits);

 private:
  int new_value(const Type& type, const Value& value);
  void note_write(const Instr& instr);

  Program& program_;
  Random& random_;
  bool reckless_;  // writes to what was saved: backwards that throw
  std::vector<Value> values_;
  std::vector<Storage> storages_;
};

}  // namespace hindcast::tests::fuzz
