// Every row of base/pointwise_ops.def: its ATen ops have a line in ops.table or pointwise.table, a shape rule, and a kernel where graphs
// contain them. Here a backward computes each op forward, as joint graphs of forward and backward will.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "capture/shape_rules/shape_rules.h"
#include "codegen/fuse/member.h"
#include "codegen/fuse/pointwise_ops.h"
#include "hindcast/graph.h"
#include "hindcast/hindcast.h"
#include "tests/whole/ops/arguments.h"
#include "tests/whole/ops/scenarios.h"
#include "tests/whole/ops/table.h"

namespace hindcast::tests::ops::pointwise_ops_test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const std::vector<std::string>& names_of_table() {
  static const std::vector<std::string> names = {
#define HC_ATEN(op, how) "aten::" op,
#define HC_OP(functor, operands, scalars, domain, result, cost, ...) __VA_ARGS__
#include "base/pointwise_ops.def"
  };
  return names;
}

c10::OperatorName name_of(const std::string& op) {
  const size_t dot = op.find('.');
  return {op.substr(0, dot), dot == std::string::npos ? "" : op.substr(dot + 1)};
}

std::vector<Row> rows_of_table() {
  std::vector<Row> rows;
  const std::set<std::string> names(names_of_table().begin(), names_of_table().end());
  for (const char* table : {"ops.table", "pointwise.table"}) {
    for (Row& row : read_rows(table_path(table))) {
      if (names.contains(row.op)) rows.push_back(std::move(row));
    }
  }
  return rows;
}

/// The op that Forward's backward calls, with the tensors left out of its arguments.
struct Call {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;
};
thread_local const Call* t_call = nullptr;

/// A backward that computes grad * op(saved tensors...).
struct Forward : torch::autograd::Function<Forward> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& root, const variable_list& operands) {
    ctx->save_for_backward(operands);
    return root.clone();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    std::vector<c10::IValue> stack = t_call->arguments;
    size_t next = 0;
    for (c10::IValue& argument : stack) {
      if (argument.isTensor()) argument = saved.at(next++);
    }
    t_call->op.callBoxed(stack);
    return {grads[0] * stack[0].toTensor(), at::Tensor()};
  }
};

/// The gradient that such a backward gives.
at::Tensor run_forward(const Row& row, const Setting& setting) {
  TensorMaker maker(setting);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name_of(row.op).name.c_str(), name_of(row.op).overload_name.c_str());
  const Call call{op, make_arguments(op.schema(), row.arguments, maker)};
  variable_list operands;
  for (const c10::IValue& argument : call.arguments) {
    if (argument.isTensor()) operands.push_back(argument.toTensor().detach());
  }
  std::vector<c10::IValue> stack = call.arguments;
  {
    const at::NoGradGuard no_grad;
    op.callBoxed(stack);
  }
  const at::Tensor result = stack[0].toTensor();
  const at::ScalarType dtype = result.scalar_type() == at::kBool ? setting.dtype : result.scalar_type();
  const at::Tensor root = at::zeros(result.sizes(), at::device(at::kCPU).dtype(dtype)).requires_grad_();
  t_call = &call;
  const at::Tensor output = Forward::apply(root, operands);
  torch::autograd::backward({output}, {at::full_like(output, 0.75)});
  return root.grad();
}

std::vector<at::ScalarType> dtypes_of(const Row& row) {
  std::vector<at::ScalarType> dtypes;
  for (const std::string& name : row.dtypes) {
    const at::ScalarType dtype = dtype_of(name);
    if (!c10::isComplexType(dtype) || codegen::find_complex_op(name_of(row.op))) dtypes.push_back(dtype);
  }
  const bool in_short_floats = row.dtypes.size() > 1 && dtypes.front() == at::kFloat && row.op.find("_backward") == std::string::npos;
  if (in_short_floats && std::find(dtypes.begin(), dtypes.end(), at::kBFloat16) == dtypes.end()) dtypes.push_back(at::kBFloat16);
  return dtypes;
}

/// Whether the row's op would be lowered to a kernel.
bool becomes_kernel(const Row& row, const Setting& setting) {
  bool found = false;
  Options options;
  options.async = false;
  options.compiler = Compiler([&](const std::shared_ptr<const Graph>& graph) {
    for (const capture::Instr& instr : graph->instrs) {
      if (instr.op && instr.op->operator_name() == name_of(row.op)) found |= codegen::describe(*graph, instr).has_value();
    }
    return std::vector<SegmentFunction>(graph->segments().size());
  });
  reset();
  const auto guard = enable(options);
  run_forward(row, setting);
  return found;
}

// Kernels are compared with ATen and float64 before they are used; a looser check here finds errors after that.
void expect_near(const at::Tensor& stock, const at::Tensor& ours) {
  const at::ScalarType real = c10::toRealValueType(stock.scalar_type());
  const double tolerance = real == at::kBFloat16 ? 2e-2 : real == at::kFloat ? 4e-6 : 1e-14;
  ASSERT_EQ(stock.scalar_type(), ours.scalar_type());
  const at::Tensor a = stock.to(at::toComplexType(at::kDouble)), b = ours.to(at::toComplexType(at::kDouble));
  EXPECT_TRUE(at::allclose(a, b, tolerance, tolerance, /*equal_nan=*/true)) << stock << "\n" << ours;
}

class PointwiseOps : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }

  const int threads_ = at::get_num_threads();
};

TEST_F(PointwiseOps, EachHasALineAndAShapeRule) {
  std::set<std::string> tested;
  for (const Row& row : rows_of_table()) tested.insert(row.op);
  for (const std::string& name : names_of_table()) {
    EXPECT_TRUE(tested.contains(name)) << name << ": give it a line in ops.table or pointwise.table";
    const auto op = c10::Dispatcher::singleton().findSchema(name_of(name));
    ASSERT_TRUE(op.has_value()) << name;
    EXPECT_TRUE(capture::has_shape_rule(*op)) << name;
  }
}

TEST_F(PointwiseOps, EachBecomesAKernelThatComputesWhatATenDoes) {
#ifndef HINDCAST_HAS_CLANG
  GTEST_SKIP() << "built without Clang";
#endif
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  options.verify = true;
  for (const Row& row : rows_of_table()) {
    SCOPED_TRACE(row.text);
    for (const at::ScalarType dtype : dtypes_of(row)) {
      Setting setting;
      setting.dtype = dtype;
      if (row.op == "aten::pow.Tensor_Scalar" && c10::isComplexType(dtype)) continue;  // some powers only
      if (row.arguments.size() > 1 && mentions(row.arguments, "cast")) continue;       // types that kernels leave to ATen
      EXPECT_TRUE(becomes_kernel(row, setting)) << c10::toString(dtype);
      reset();
      for (const int64_t n : {3, 3, 5}) {
        setting.n = n;
        const at::Tensor stock = run_forward(row, setting);
        const auto guard = enable(options);
        expect_near(stock, run_forward(row, setting));
        ASSERT_EQ(stats().refused_graphs + stats().compiler_failures, 0U) << describe(setting);
      }
      EXPECT_GT(stats().fused_graphs, 0U) << c10::toString(dtype);
    }
  }
}

}  // namespace
}  // namespace hindcast::tests::ops::pointwise_ops_test
