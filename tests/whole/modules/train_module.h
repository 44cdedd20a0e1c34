#pragma once
#include <gtest/gtest.h>

#include "hindcast/aot.h"
#include "tests/support/programs.h"
#include "tests/whole/modules/module_table.h"

namespace hindcast::tests {

/// Four steps with batches of 4, 4, 3, 4 and plain SGD; grads are set to undefined or to zero between them.
inline void train(const ModuleRow& row, bool set_to_none, Log& log) {
  const auto under_test = row.make();
  for (const int64_t batch : {4, 4, 3, 4}) {
    const auto inputs = under_test.inputs(batch);
    const auto out = under_test.forward(inputs);
    out.pow(2).mean().backward();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].requires_grad()) log.show("input " + std::to_string(i), inputs[i].grad());
    }
    for (const auto& parameter : under_test.module->named_parameters()) {
      log.show(parameter.key(), parameter.value().grad());
      const at::NoGradGuard no_grad;
      if (parameter.value().grad().defined()) parameter.value().data().sub_(parameter.value().grad().to_dense(), 0.1);
    }
    for (const auto& buffer : under_test.module->named_buffers()) {
      log.show(buffer.key(), buffer.value());
    }
    under_test.module->zero_grad(set_to_none);
  }
}

inline void train_with_both_engines(const ModuleRow& row, bool set_to_none) {
  expect_same([&](Log& log) { train(row, set_to_none, log); }, Takeover::Hits);
}

/// Every graph captured meanwhile is replayed on copies; none may differ from its capture by a bit.
inline void train_with_verified_graphs(const ModuleRow& row) {
  hindcast::reset();
  Options options;
  options.verify = true;
  const auto guard = hindcast::enable(options);
  at::manual_seed(7);
  Log log;
  train(row, /*set_to_none=*/true, log);
  EXPECT_GT(hindcast::stats().unique_graphs, 0U);
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U) << hindcast::report();
}

/// The same training with the forward compiled ahead of time; every bit is eager's.
inline void train_compiled(const ModuleRow& row, const Partition& partition) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  options.partition = partition;
  const ModuleRow compiled{row.name, [&] {
                             ModuleUnderTest under_test = row.make();
                             const auto forward = aot_function(under_test.forward, options);
                             under_test.forward = [forward](const std::vector<at::Tensor>& inputs) { return forward(inputs); };
                             return under_test;
                           }};
  Log eager, ahead;
  at::manual_seed(7);
  train(row, /*set_to_none=*/true, eager);
  at::manual_seed(7);
  train(compiled, /*set_to_none=*/true, ahead);
  EXPECT_EQ(ahead.events(), eager.events());
}

inline void PrintTo(const ModuleRow& row, std::ostream* out) { *out << row.name; }

}  // namespace hindcast::tests
