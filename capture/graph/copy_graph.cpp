#include "capture/graph/copy_graph.h"

namespace hindcast::capture {
namespace {

void copy_lists(std::vector<Arg>& args) {
  for (Arg& arg : args) {
    const c10::IValue& constant = arg.constant;
    if (constant.isIntList() || constant.isDoubleList() || constant.isBoolList() || constant.isString()) arg.constant = constant.deepcopy();
  }
}

}  // namespace

std::shared_ptr<const Graph> copy_of(const Graph& graph) {
  auto copy = graph.copy();
  copy->symbols = std::make_shared<SymbolTable>(*graph.symbols);
  for (Instr& instr : copy->instrs) {
    copy_lists(instr.args);
    for (ViewStep& view : instr.views) copy_lists(view.args);
  }
  return copy;
}

}  // namespace hindcast::capture
