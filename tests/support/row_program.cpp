#include "tests/support/row_program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "codegen/kernel/backend.h"

namespace hindcast::tests {
namespace {

using codegen::Body;
using codegen::BodyStore;
using codegen::Extent;
using Kind = codegen::Reduction::Kind;
using Over = codegen::Reduction::Over;
using Tensors = std::vector<at::Tensor>;

codegen::Group group_of(const RowProgram& program, const at::Tensor& x, capture::SymbolTable& symbols) {
  codegen::Group group;
  std::vector<int8_t> dims;
  for (int64_t axis = 0; axis < x.dim(); ++axis) {
    group.domain.push_back(symbols.integer(x.size(axis)));
    dims.push_back(static_cast<int8_t>(axis));
    if (axis > 0) group.columns |= 1u << axis;
  }
  group.channels = x.dim() == 3 ? 2 : 0;
  Body& body = group.body;
  body.compute = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  body.by_rows = true;
  body.loads = {{x.scalar_type()}};
  body.ops = program.ops;
  body.stores = program.stores;
  group.loads.push_back(capture::ValueId{0});
  group.accesses.push_back({{}, dims});
  for (BodyStore& store : body.stores) {
    store.type = x.scalar_type();
    const auto first = group.domain.begin(), second = first + 1;
    group.stores.push_back(capture::ValueId{static_cast<uint32_t>(group.stores.size() + 1)});
    group.shapes.push_back(store.extent == Extent::Row        ? std::vector(first, second)
                           : store.extent == Extent::Columns  ? std::vector(second, group.domain.end())
                           : store.extent == Extent::Channels ? std::vector(second, second + 1)
                                                              : group.domain);
    group.orders.emplace_back();
  }
  return group;
}

}  // namespace

Tensors RowProgram::run(const at::Tensor& x) const {
  const auto symbols = capture::SymbolTable::make();
  const codegen::Group group = group_of(*this, x, *symbols);
  std::string why_not;
  const codegen::Backend& backend = *codegen::backend_of(c10::kCPU);
  const auto kernel = backend.kernel(group.body, why_not);
  EXPECT_TRUE(kernel) << why_not;
  if (!kernel) return Tensors(stores.size());
  capture::Env env;
  capture::Evaluator(*symbols).evaluate(capture::bindings_at_capture(*symbols), env);
  codegen::Step step;
  codegen::Slots slots{x};
  step.inputs.push_back({0, false});
  for (size_t i = 0; i < stores.size(); ++i) {
    step.outputs.push_back(static_cast<uint32_t>(slots.size()));
    slots.emplace_back();
  }
  backend.call(group, kernel)->run(step, slots, env);
  return {slots.begin() + 1, slots.end()};
}

RowProgram moments() {
  RowProgram program;
  program.ops = {reduction(Kind::Mean, Over::Row), reduction(Kind::M2, Over::Row)};
  program.store(result(0), Extent::Row);
  program.store(result(1), Extent::Row);
  program.store(kX, Extent::Columns, Kind::Mean);
  program.store(kX, Extent::Columns, Kind::M2);
  return program;
}

RowProgram softmax() {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row),
                 {"sub", {kX, result(0)}},
                 {"exp", {result(1)}},
                 reduction(Kind::Sum, Over::Row, result(2)),
                 {"div", {result(2), result(3)}}};
  program.store(result(4), Extent::Element);
  program.store(result(0), Extent::Row);
  program.store(result(3), Extent::Row);
  return program;
}

double units(const at::Tensor& ours, const at::Tensor& exact, const at::Tensor& scale) {
  const double unit = ours.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  return (ours.to(at::kDouble) - exact).abs().div(scale).max().item<double>() / unit;
}

}  // namespace hindcast::tests
