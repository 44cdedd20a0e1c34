// A slot with a captured graph without instrs: which plan and graph it returns, and how many bytes it accounts for.

#include "engine/plan/plan_slot.h"

#include <gtest/gtest.h>

#include <memory>

namespace hindcast::tests {
namespace {

using engine::PlanSlot;

std::shared_ptr<const capture::Graph> some_graph() { return std::make_shared<const capture::Graph>(); }

/// Of another graph than the captured one, as after passes, and with no group.
std::shared_ptr<const codegen::Plan> better_plan() {
  const auto graph = some_graph();
  const auto no_group = [](uint32_t) { return std::unique_ptr<const codegen::OpCall>(); };
  return std::make_shared<const codegen::Plan>(graph, codegen::Schedule::unfused(*graph), no_group);
}

TEST(PlanSlot, StartsWithThePlanAsCaptured) {
  const auto graph = some_graph();
  PlanSlot slot(graph);
  EXPECT_EQ(slot.graph(), graph);
  EXPECT_EQ(slot.plan()->shared_graph(), graph);
  EXPECT_TRUE(slot.plan()->is_as_captured());
  EXPECT_EQ(slot.plan_as_captured(), slot.plan());
}

TEST(PlanSlot, HandsOutTheBetterPlanAndKeepsTheCapturedGraph) {
  const auto graph = some_graph(), copy = some_graph();
  PlanSlot slot(graph);
  const auto former = slot.plan();
  const auto better = better_plan();
  slot.publish(copy, better);
  EXPECT_EQ(slot.plan(), better);
  EXPECT_EQ(slot.graph(), copy);
  EXPECT_EQ(former->shared_graph(), graph);  // a run that holds it goes on
}

TEST(PlanSlot, MakesThePlanAsCapturedAgainOnDemandAndOnce) {
  PlanSlot slot(some_graph());
  slot.publish(slot.graph(), better_plan());
  const size_t before = slot.footprint();
  const auto captured = slot.plan_as_captured();
  EXPECT_TRUE(captured->is_as_captured());
  EXPECT_EQ(captured->shared_graph(), slot.graph());
  EXPECT_EQ(slot.plan_as_captured(), captured);
  EXPECT_EQ(slot.footprint(), before + captured->footprint());
}

TEST(PlanSlot, AnswersForItsBytesAsLongAsItLives) {
  const size_t bytes = PlanSlot::footprint_of_all(), count = PlanSlot::count_of_all();
  {
    PlanSlot slot(some_graph());
    slot.add_owners_bytes(1000);
    EXPECT_GT(slot.footprint(), 1000u);
    slot.publish(slot.graph(), better_plan());
    slot.plan_as_captured();
    EXPECT_EQ(PlanSlot::footprint_of_all(), bytes + slot.footprint());
    EXPECT_EQ(PlanSlot::count_of_all(), count + 1);
  }
  EXPECT_EQ(PlanSlot::footprint_of_all(), bytes);
  EXPECT_EQ(PlanSlot::count_of_all(), count);
}

}  // namespace
}  // namespace hindcast::tests
