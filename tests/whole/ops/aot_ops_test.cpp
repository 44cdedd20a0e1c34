// Every row of the table of operators as a compiled function of its own, under both partitions: results and gradients to the stock
// engine's bits in the call that is traced, in later ones, and at another size.

#include <gtest/gtest.h>

#include <map>

#include "hindcast/detail/aot_core.h"
#include "tests/support/same_grads.h"
#include "tests/whole/ops/op_run.h"
#include "tests/whole/ops/scenarios.h"
#include "tests/whole/ops/table.h"

namespace hindcast::tests::ops {
namespace {

using c10::IValue;
using Tensors = std::vector<at::Tensor>;

void collect(const IValue& value, Tensors& tensors) {
  if (value.isTensor()) tensors.push_back(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  }
  if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) tensors.push_back(tensor.value_or(at::Tensor()));
  }
}
Tensors tensors_of(const std::vector<IValue>& values) {
  Tensors tensors;
  for (const IValue& value : values) collect(value, tensors);
  return tensors;
}

std::vector<IValue> with_tensors(std::vector<IValue> values, const Tensors& tensors) {
  size_t next = 0;
  for (IValue& value : values) {
    if (value.isTensor()) {
      value = tensors[next++];
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (size_t i = value.toTensorVector().size(); i > 0; --i) list.push_back(tensors[next++]);
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (size_t i = value.toOptionalTensorVector().size(); i > 0; --i, ++next)
        list.push_back(tensors[next].defined() ? std::optional(tensors[next]) : std::nullopt);
      value = list;
    }
  }
  return values;
}

std::vector<IValue> without_tensors(const std::vector<IValue>& values) { return with_tensors(values, Tensors(tensors_of(values).size())); }

OpCaller compiled(detail::AotCore& core) {
  return [&core](const c10::OperatorHandle& op, std::vector<IValue> arguments) {
    const auto run = [&](const Tensors& tensors) {
      torch::jit::Stack stack = with_tensors(arguments, tensors);
      op.callBoxed(stack);
      return detail::FunctionOutput{tensors_of(stack), std::make_shared<const std::vector<IValue>>(without_tensors(stack))};
    };
    std::ostringstream facts;
    for (const IValue& argument : arguments) {
      if (!argument.isTensor() && !argument.isTensorList() && !argument.isOptionalTensorList()) facts << argument << ';';
      facts << tensors_of({argument}).size() << ';';
    }
    const auto output = core.call({tensors_of(arguments), facts.str(), {}, run});
    return with_tensors(*static_cast<const std::vector<IValue>*>(output.shape.get()), output.tensors);
  };
}

class Tally {
 public:
  void add(const AotStats& stats) {
    calls += stats.calls;
    hits += stats.hits;
    eager += stats.eager;
  }
  uint64_t calls = 0, hits = 0, eager = 0;
};

void expect_like_stock(const Row& row, Partition how, Tally& tally) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  options.partition = std::move(how);
  detail::AotCore core(options);
  Setting setting;
  setting.dtype = dtype_of(row.dtypes.front());
  const uint64_t seeds[] = {1, 2, 3, 4, 5};
  const int64_t sizes[] = {3, 3, 4, 5, 6};
  for (size_t i = 0; i < 5; ++i) {
    setting.seed = seeds[i];
    setting.n = sizes[i];
    const Outcome stock = run_stock([&](uint64_t) { return run_row(row, setting); }, setting.seed);
    const Outcome given = run_stock([&](uint64_t) { return run_row(row, setting, compiled(core)); }, setting.seed);
    if (!stock.error.empty()) {
      EXPECT_FALSE(given.error.empty());
      continue;
    }
    if (!expect_equal(stock, given)) return;
  }
  tally.add(core.stats());
}

TEST(AotOps, AreTheStockEnginesToTheBit) {
  Tally tally;
  for (const Row& row : read_rows(table_path("ops.table"))) {
    if (row.node == "NnpackSpatialConvolutionBackward0") continue;
    SCOPED_TRACE(table_path("ops.table") + ":" + std::to_string(row.line) + ": " + row.text);
    expect_like_stock(row, partition::standard, tally);
    expect_like_stock(row, partition::min_cut, tally);
  }
  std::cout << tally.calls << " calls, " << tally.hits << " by programs, " << tally.eager << " as they are\n";
  EXPECT_GT(tally.hits, tally.calls / 3);
}

}  // namespace
}  // namespace hindcast::tests::ops
