#include "cache/miss.h"

#include <gtest/gtest.h>

namespace hindcast::cache {
namespace {

using Kind = Miss::Kind;

Miss miss_at(Kind kind, const char* node, uint32_t node_call) {
  Miss miss;
  miss.kind = kind;
  miss.node = node;
  miss.node_call = node_call;
  return miss;
}

Miss change_at(Kind kind, const char* node, uint32_t node_call, const char* what, const char* before, const char* after) {
  Miss miss = miss_at(kind, node, node_call);
  miss.what = what;
  miss.before = before;
  miss.after = after;
  return miss;
}

TEST(MissSentence, NewNode) {
  Miss miss = miss_at(Kind::NewNode, "torch::autograd::GraphRoot", 0);
  miss.key_size = 39;
  EXPECT_EQ(sentence(miss),
            "Cache miss due to new autograd node: torch::autograd::GraphRoot (NodeCall 0) with key size 39, previous key "
            "sizes=[]");
  miss = miss_at(Kind::NewNode, "MulBackward0", 2);
  miss.key_size = 71;
  miss.previous_key_sizes = {56, 70};
  EXPECT_EQ(sentence(miss), "Cache miss due to new autograd node: MulBackward0 (NodeCall 2) with key size 71, previous key sizes=[56,70]");
}

TEST(MissSentence, ChangedShapes) {
  Miss miss = miss_at(Kind::ChangedShapes, "torch::autograd::GraphRoot", 0);
  EXPECT_EQ(sentence(miss), "Cache miss due to changed shapes: marking size idx 0 of torch::autograd::GraphRoot (NodeCall 0) as dynamic");
  miss = miss_at(Kind::ChangedShapes, "torch::autograd::AccumulateGrad", 2);
  miss.size_index = 3;
  EXPECT_EQ(sentence(miss),
            "Cache miss due to changed shapes: marking size idx 3 of torch::autograd::AccumulateGrad (NodeCall 2) as dynamic");
}

TEST(MissSentence, ChangedShapesThatStayStatic) {
  Miss miss = change_at(Kind::ChangedShapes, "SumBackward0", 1, "", "4", "8");
  miss.made_dynamic = false;
  EXPECT_EQ(sentence(miss), "Cache miss due to changed shapes: size idx 0 of SumBackward0 (NodeCall 1) 4 -> 8, kept static");
}

TEST(MissSentence, ChangedScalar) {
  Miss miss = change_at(Kind::ChangedScalar, "MulBackward0", 12, "other", "0.5", "0.25");
  EXPECT_EQ(sentence(miss), "Cache miss due to changed scalar: MulBackward0 (NodeCall 12): saved scalar other 0.5 -> 0.25, now lifted");
  miss.lifted = false;
  EXPECT_EQ(sentence(miss), "Cache miss due to changed scalar: MulBackward0 (NodeCall 12): saved scalar other 0.5 -> 0.25");
}

TEST(MissSentence, ChangedTensor) {
  EXPECT_EQ(sentence(change_at(Kind::ChangedTensor, "MmBackward0", 3, "self strides", "[10, 1]", "[1, 10]")),
            "Cache miss due to changed tensor: MmBackward0 (NodeCall 3): self strides [10, 1] -> [1, 10]");
}

TEST(MissSentence, ChangedTensorInWordsOfItsOwn) {
  EXPECT_EQ(sentence(change_at(Kind::ChangedTensor, "MmBackward0", 3, "self is conjugated now", "", "")),
            "Cache miss due to changed tensor: MmBackward0 (NodeCall 3): self is conjugated now");
}

TEST(MissSentence, FailedGuard) {
  EXPECT_EQ(sentence(change_at(Kind::FailedGuard, "ExpandBackward0", 4, "s0 == 1", "true", "false")),
            "Cache miss due to failed guard: ExpandBackward0 (NodeCall 4): s0 == 1 true -> false");
}

TEST(MissSentence, LimitReached) {
  Miss miss = miss_at(Kind::LimitReached, "MulBackward0", 2);
  miss.limit = 8;
  EXPECT_EQ(sentence(miss),
            "Cache miss due to limit reached: MulBackward0 (NodeCall 2) would need one more than the 8 variants that "
            "Options::limit allows; from now on a backward that none of them fits is not captured");
}

TEST(MissName, IsTheEnumerator) {
  EXPECT_STREQ(name(Kind::NewNode), "NewNode");
  EXPECT_STREQ(name(Kind::ChangedShapes), "ChangedShapes");
  EXPECT_STREQ(name(Kind::LimitReached), "LimitReached");
}

}  // namespace
}  // namespace hindcast::cache
