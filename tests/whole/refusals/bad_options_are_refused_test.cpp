#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>

#include "engine/diagnosis/log_setup.h"
#include "hindcast/grad_ready.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

using testing::HasSubstr;

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(BadOptionsAreRefused, ALimitOfZero) {
  Options options;
  options.limit = 0;
  const std::string text = refusal_of([&] { const auto guard = hindcast::enable(options); });
  EXPECT_THAT(text, HasSubstr("Options::limit: 0, expected at least 1"));
  EXPECT_FALSE(hindcast::active());
}

TEST(BadOptionsAreRefused, ACacheOfNothing) {
  Options options;
  options.cache_size = 0;
  const std::string text = refusal_of([&] { const auto guard = hindcast::enable(options); });
  EXPECT_THAT(text, HasSubstr("Options::cache_size: 0, expected at least 1"));
}

TEST(BadOptionsAreRefused, AndTheOuterGuardsStay) {
  const auto outer = hindcast::enable();
  Options options;
  options.limit = 0;
  refusal_of([&] { const auto guard = hindcast::enable(options); });
  EXPECT_TRUE(hindcast::active());
}

TEST(BadLogNamesAreRefused, WithTheValidOnes) {
  const std::string text = refusal_of([] { hindcast::set_logs("compiled_autograd,recompile"); });
  EXPECT_THAT(text, HasSubstr("unknown name 'recompile'"));
  EXPECT_THAT(text, HasSubstr("Did you mean 'recompiles'?"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "Valid names: all, aot, aot_graphs, cache, compiled_autograd, compiled_autograd_verbose, cudagraphs, fallbacks, fusion, graph, "
          "graph_code, hooks, kernel_code, perf, recompiles."));
}

TEST(BadHooksAreRefused, OnGradReadyOfATensorWithoutGradient) {
  const std::string text = refusal_of([] { hindcast::on_grad_ready(at::ones({3}), [](const at::Tensor&) {}); });
  EXPECT_NE(text, "nothing was thrown");
}

}  // namespace
}  // namespace hindcast::tests
