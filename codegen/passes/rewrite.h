#pragma once
// The changes of a pass to a graph, as data: values that are replaced by others or get another layout, instrs that are removed, and instrs
// that are replaced by others with the same results. Nothing else may change. Value ids are stable: an id means the same tensor in the
// rewritten graph as in the captured one.

#include "hindcast/graph.h"

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace hindcast::codegen {

/// By ValueId: the value read in its place; undefined if nothing is read, as for a gradient held for a node which does not read it.
using Replacements = std::unordered_map<uint32_t, capture::ValueId>;

struct Rewrite {
  Replacements replaced;
  std::unordered_set<uint32_t> removed;  // instrs
  std::unordered_map<uint32_t, capture::Instr> rebuilt;
  std::unordered_map<uint32_t, capture::Value> values;  // by ValueId: with another layout
  std::map<std::string, uint32_t> reasons;              // for logs: each kind of change, and how often it was made

  bool empty() const { return replaced.empty() && removed.empty() && rebuilt.empty(); }
  capture::ValueId replacement_of(capture::ValueId value) const;
};

/// A copy of the graph with the changes applied, verified.
std::shared_ptr<const capture::Graph> rewritten(const capture::Graph& graph, const Rewrite& rewrite);

}  // namespace hindcast::codegen
