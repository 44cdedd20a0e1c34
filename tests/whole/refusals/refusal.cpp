#include "tests/whole/refusals/refusal.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/log_capture.h"

namespace hindcast::tests {

void expect_refused(const Refusal& expected, const std::function<std::vector<at::Tensor>()>& program, const Options& options) {
  const auto seeded = [&](uint64_t) { return program(); };
  const Outcome stock = run_stock(seeded, 1);
  hindcast::reset();
  LogCapture logs("");
  expect_equal(stock, run_hindcast(seeded, 1, options));

  Stats stats = hindcast::stats();
  const std::string reason = engine::name(expected.reason);
  EXPECT_EQ(stats.fallbacks_by_reason, (std::map<std::string, uint64_t>{{reason, 1}}));
  EXPECT_EQ(stats.backwards, expected.taken_over);
  EXPECT_EQ(stats.hits + stats.misses, expected.taken_over);
  EXPECT_EQ(stats.unique_graphs, expected.taken_over);
  EXPECT_EQ(logs.count(engine::explain(expected.reason)), expected.warns ? 1U : 0U) << logs.text();
  EXPECT_NE(hindcast::report().find(engine::explain(expected.reason)), std::string::npos) << hindcast::report();

  const auto guard = hindcast::enable();
  const auto x = at::ones({3}).set_requires_grad(true);
  x.exp().sum().backward();
  EXPECT_EQ(hindcast::stats().backwards, expected.taken_over + 1) << "the refusal outlives its call";
}

}  // namespace hindcast::tests
