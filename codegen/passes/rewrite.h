#pragma once
// What a pass changes in a graph, as data: values that are read in place of others, instrs that are removed, and instrs that make
// their results in another way. Nothing else may change. No value gets another id: a value's id finds the same tensor in the rewritten
// graph as in the captured one.

#include "capture/graph/graph.h"

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace hindcast::codegen {

/// By ValueId: what is read in its place; undefined where nothing is, as for a gradient that waits at a node which does not read it.
using Replacements = std::unordered_map<uint32_t, capture::ValueId>;

struct Rewrite {
  Replacements replaced;
  std::unordered_set<uint32_t> removed;  // instrs
  std::unordered_map<uint32_t, capture::Instr> rebuilt;
  std::map<std::string, uint32_t> reasons;  // what was found, and how often

  bool empty() const { return replaced.empty() && removed.empty() && rebuilt.empty(); }
  capture::ValueId replacement_of(capture::ValueId value) const;
};

/// A copy of the graph with that done, verified.
std::shared_ptr<const capture::Graph> rewritten(const capture::Graph& graph, const Rewrite& rewrite);

}  // namespace hindcast::codegen
