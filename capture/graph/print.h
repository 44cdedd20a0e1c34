#pragma once
// Prints a graph as text, in the style of PyTorch's logs, and as a Graphviz picture. Classes derived from Printer describe what a graph has
// besides calls and sums.

#include "hindcast/graph.h"

#include <map>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

namespace hindcast::capture {

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph), names_(graph.values.size()) {}
  virtual ~Printer() = default;

  std::string text();
  std::string dot();
  /// By value; empty for a value that is neither an input nor made by an instr.
  std::vector<std::string> names() {
    name_values();
    return names_;
  }

 protected:
  struct Input {
    ValueId value;
    std::string name;
    std::string source;  // how the text describes it
  };
  virtual std::string head() const;
  virtual std::vector<Input> inputs() const;
  /// Name of the event's box in the picture, and of the values that it makes; empty: the event is in neither text nor picture.
  virtual std::string name_of(const Instr& event) const;
  /// The event's text, without the values that it makes.
  virtual std::string text_of(const Instr& event, const std::string& inputs) const;
  /// Colour of the event's box.
  virtual std::string colour_of(const Instr& event) const;
  /// "MulBackward0 (NodeCall 2)"
  virtual std::string label_of_origin(uint32_t origin) const;
  /// Prefix of the names of values that a call or a sum makes.
  virtual std::string prefix_of(const Instr& /*instr*/) const { return {}; }
  /// Text before the results.
  virtual std::string tail() const { return {}; }
  virtual std::vector<ValueId> results() const { return graph_.outputs; }

  /// Names all values, as text() does; for callers that use the names in other texts.
  void name_values();
  const std::string& name(ValueId value) const;
  std::string typed(ValueId id) const;

  const Graph& graph_;

 private:
  std::string unique(const std::string& base);
  std::string base_name(const Instr& instr) const;
  std::string type(ValueId id) const;
  std::string list(const ValueIds& values) const;
  std::string right_side(const Instr& instr) const;
  std::string arguments(const std::vector<Arg>& args, uint32_t skipped = 0xffffffffu) const;
  std::string argument(const Arg& arg) const;
  void line(const std::string& text) { out_ << "        " << text << "\n"; }
  void print(const Instr& instr);
  void draw_inputs();
  void draw(uint32_t i);

  std::vector<std::string> names_;
  std::map<std::string, size_t> counts_;
  std::unordered_set<std::string> taken_;  // names given by the caller
  std::vector<std::string> makers_;        // by value: the box in the picture
  std::ostringstream out_;
};

}  // namespace hindcast::capture
