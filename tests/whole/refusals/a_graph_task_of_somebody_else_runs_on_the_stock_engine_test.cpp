// Engine::execute_with_graph_task() takes a task that its caller created and will inspect afterwards. LibTorch exports no way to create
// one, so this test borrows that of a stock backward, at the point where LibTorch exposes it.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>
#include <torch/types.h>

#include "capture/recorder/libtorch_compat.h"
#include "engine/counters/fallback.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

using namespace torch::autograd;

variable_list run_under_a_guard(const capture::NodePtr& root, const GraphTask& task, bool, const edge_list&) {
  const auto guard = hindcast::enable();
  auto& own = const_cast<GraphTask&>(task);
  const auto future = Engine::get_default_engine().execute_with_graph_task(own.shared_from_this(), root, InputBuffer(variable_list()));
  future->wait();
  return future->value().toTensorVector();
}

TEST(AGraphTaskOfSomebodyElse, RunsOnTheStockEngine) {
  hindcast::reset();
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  const auto loss = x.sin().sum();
  Engine::set_compiled_autograd(&run_under_a_guard);
  loss.backward();
  Engine::set_compiled_autograd(nullptr);
  EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  EXPECT_EQ(hindcast::stats().fallbacks_by_reason,
            (std::map<std::string, uint64_t>{{engine::name(engine::FallbackReason::GraphTaskEntry), 1}}));
  EXPECT_EQ(hindcast::stats().backwards, 0U);
}

}  // namespace
}  // namespace hindcast::tests
