#pragma once
// What a pass wants of a graph, as data: values that are read in place of others, instrs that go, and instrs that make their results
// in another way. Nothing else may change, and no value gets another id: who looks a value up by id finds in the rewritten graph the tensor that the captured one has there.

#include "capture/graph/graph.h"

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace hindcast::codegen {

/// By ValueId: what is read in its place; undefined where nothing is, as for a gradient that waits at a node which does not read it.
using Replacements = std::unordered_map<uint32_t, capture::ValueId>;

struct Rewrite {
  Replacements instead;
  std::unordered_set<uint32_t> gone;  // instrs
  std::unordered_map<uint32_t, capture::Instr> instead_of_instr;
  std::map<std::string, uint32_t> whys;  // what was found, and how often

  bool empty() const { return instead.empty() && gone.empty() && instead_of_instr.empty(); }
  capture::ValueId now(capture::ValueId value) const;
};

/// A copy of the graph with that done, verified.
capture::Graph rewritten(const capture::Graph& graph, const Rewrite& rewrite);

}  // namespace hindcast::codegen
