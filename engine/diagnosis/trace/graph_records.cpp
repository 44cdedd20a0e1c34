#include "engine/diagnosis/trace/graph_records.h"

#include "base/format.h"
#include "base/trace.h"
#include "codegen/store/kernel_key.h"

#include <algorithm>
#include <map>
#include <vector>

namespace hindcast::engine {
namespace {

using base::JsonObject;
using capture::Graph;
using capture::Instr;

std::string op_of(const Instr& instr) {
  switch (instr.kind) {
    case capture::InstrKind::Op:
    case capture::InstrKind::Mutate: {
      const auto& name = instr.op->operator_name();
      return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    }
    case capture::InstrKind::AddGrads:
      return "sum of gradients";
    case capture::InstrKind::Event:
      break;
  }
  return "event";
}

// The nodes whose ops are in the group, each once.
std::string nodes_of(const codegen::Group& group, const Graph& graph) {
  std::string names;
  uint32_t last = ~0U;
  for (const uint32_t i : group.members) {
    const uint32_t origin = graph.instrs[i].origin;
    if (origin == last || origin >= graph.origins.size()) continue;
    last = origin;
    names += (names.empty() ? " of " : ", ") + graph.origins[origin];
  }
  return names;
}

void add_text(JsonObject& body, const Graph& graph) { body.add("listing", graph.print()).add("dot", graph.dot()); }

JsonObject counts_of(const Graph& graph) {
  JsonObject head;
  head.add("graph", graph.id)
      .add("nodes", graph.origins.size())
      .add("instrs", graph.instrs.size())
      .add("ops", std::count_if(graph.instrs.begin(), graph.instrs.end(), [](const Instr& instr) { return capture::computes(instr); }))
      .add("values", graph.values.size())
      .add("symbols", graph.symbols->int_symbols() + graph.symbols->float_symbols());
  return head;
}

// Ops that are in no group, by name.
JsonObject left_to_aten(const codegen::Schedule& schedule, const Graph& graph) {
  std::map<std::string, size_t> counts;
  for (const auto& item : schedule.items) {
    if (item.is_group || !capture::computes(graph.instrs[item.index])) continue;
    ++counts[op_of(graph.instrs[item.index])];
  }
  JsonObject by_name;
  for (const auto& [name, count] : counts) by_name.add(name, count);
  return by_name;
}

JsonObject group_record(const codegen::Group& group, const Graph& graph, const std::vector<std::string>& names,
                        const codegen::Backend* kernels) {
  std::vector<JsonObject> ops;
  for (const uint32_t i : codegen::instrs_of(group)) {
    const Instr& instr = graph.instrs[i];
    std::string made;
    for (const capture::ValueId value : instr.outputs) {
      if (value.defined()) made += (made.empty() ? "" : ", ") + names[value.index];
    }
    ops.emplace_back().add("instr", i).add("op", op_of(instr)).add("makes", made);
  }
  std::vector<std::string> domain;
  for (const capture::ExprId size : group.domain) domain.push_back(graph.symbols->str(size));
  JsonObject record;
  record.add("sentence", sentence_of(group, graph)).add("stopped", group.stopped).add("by_rows", group.body.by_rows);
  record.add("loads", group.loads.size()).add("stores", group.stores.size()).add("leaves", group.leaves.size());
  record.add("last", group.members.back()).add("ops", ops).add("domain", domain);
  if (kernels != nullptr) {
    const std::string text = kernels->source(group.body);
    record.add("kernel", codegen::store::text_of(codegen::store::key_of({text})));
  }
  return record;
}

}  // namespace

void record_graph(const Graph& graph, std::string_view role) {
  JsonObject head = counts_of(graph), body;
  head.add("role", role);
  const auto first = std::find_if(graph.origins.begin(), graph.origins.end(),
                                  [](const std::string& name) { return name.find("GraphRoot") == std::string::npos; });
  if (first != graph.origins.end()) head.add("first", *first);
  std::vector<std::string> guards;
  for (const auto& relation : graph.symbols->relations()) guards.push_back(graph.symbols->describe(relation));
  body.add("guards", guards).add("origins", graph.origins);
  add_text(body, graph);
  base::write_record("graph", std::move(head), &body);
}

void record_joint(const Graph& joint, uint32_t forward, uint32_t backward) {
  JsonObject head = counts_of(joint), body;
  head.add("forward", forward).add("backward", backward);
  add_text(body, joint);
  base::write_record("joint", std::move(head), &body);
}

std::string sentence_of(const codegen::Group& group, const Graph& graph) {
  return base::format("graph {}: {} ops in one kernel{}{}, {} loads, {} stores; it stopped growing at {}", graph.id, group.members.size(),
                      group.body.by_rows ? " by rows" : "", nodes_of(group, graph), group.loads.size(), group.stores.size(), group.stopped);
}

void record_groups(const codegen::Schedule& schedule, const Graph& graph, const codegen::Backend* kernels) {
  JsonObject head = counts_of(graph), body;
  size_t fused = 0;
  std::vector<JsonObject> groups;
  const std::vector<std::string> names = graph.value_names();
  for (const codegen::Group& group : schedule.groups) {
    fused += group.members.size();
    groups.push_back(group_record(group, graph, names, kernels));
  }
  head.add("groups", schedule.groups.size()).add("fused", fused).add("kernels", kernels != nullptr);
  body.add("groups", groups).add("left", std::vector{left_to_aten(schedule, graph)});
  add_text(body, graph);
  base::write_record("groups", std::move(head), &body);
}

}  // namespace hindcast::engine
