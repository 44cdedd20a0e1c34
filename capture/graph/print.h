#pragma once
// A graph as text, in the words of PyTorch's logs, and as a picture. What a graph has beside calls and sums, a class that derives
// from Printer puts into words.

#include "capture/graph/graph.h"

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
  /// By value; empty for a value that no input is and no instr makes.
  std::vector<std::string> names() {
    name_values();
    return names_;
  }

 protected:
  struct Input {
    ValueId value;
    std::string name;
    std::string source;  // what the text says it is
  };
  virtual std::string head() const;
  virtual std::vector<Input> inputs() const;
  /// Of the box that an event is in the picture, and of the values that it makes; empty: it is in neither text nor picture.
  virtual std::string name_of(const Instr& event) const;
  /// What the text has for the event, but for the values that it makes.
  virtual std::string text_of(const Instr& event, const std::string& inputs) const;
  /// Of the event's box.
  virtual std::string colour_of(const Instr& event) const;
  /// "MulBackward0 (NodeCall 2)"
  virtual std::string label_of_origin(uint32_t origin) const;
  /// Before the names of the values that a call or a sum makes.
  virtual std::string prefix_of(const Instr& /*instr*/) const { return {}; }
  /// Before the results.
  virtual std::string tail() const { return {}; }
  virtual std::vector<ValueId> results() const { return graph_.outputs; }

  /// What the text calls each value, by text() or this; needed by who puts values into other texts.
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
  std::unordered_set<std::string> taken_;  // names that somebody gave
  std::vector<std::string> makers_;        // by value: the box in the picture
  std::ostringstream out_;
};

}  // namespace hindcast::capture
