// A joint program in two halves: what is saved, what is recomputed, and that both halves together compute the same.

#include "codegen/partition/explain.h"
#include "codegen/partition/known_values.h"
#include "codegen/partition/min_cut.h"
#include "codegen/partition/split.h"
#include "codegen/partition/standard.h"
#include "codegen/plan/execute.h"
#include "joints.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <string>

namespace hindcast::tests::partition_test {
namespace {

using capture::Graph;
using capture::Instr;
using capture::Joint;
using capture::Partitioned;
using capture::ValueId;
using codegen::min_cut;
using codegen::split;
using codegen::standard;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> named(const Joint& joint, const std::vector<ValueId>& values) {
  const auto names = codegen::names_of(joint);
  std::vector<std::string> texts;
  for (const ValueId value : values) texts.push_back(value.defined() ? names[value.index] : "None");
  return texts;
}

std::vector<std::string> made_by(const Joint& joint, const Graph& graph) {
  std::vector<ValueId> values;
  for (const Instr& instr : graph.instrs) values.insert(values.end(), instr.outputs.begin(), instr.outputs.end());
  return named(joint, values);
}

int64_t bytes_of(const Joint& joint, const Partitioned& parts) { return codegen::saved_bytes(codegen::JointUses(joint), parts.saved); }

using Runner = std::function<std::unordered_map<uint32_t, at::Tensor>(std::shared_ptr<const Graph>, const std::vector<at::Tensor>&)>;

std::unordered_map<uint32_t, at::Tensor> replayed(std::shared_ptr<const Graph> graph, const std::vector<at::Tensor>& inputs) {
  return values_of(*graph, inputs);
}

std::unordered_map<uint32_t, at::Tensor> planned(std::shared_ptr<const Graph> graph, const std::vector<at::Tensor>& inputs) {
  const codegen::Plan plan(graph);
  capture::Env env;
  EXPECT_TRUE(plan.evaluator().evaluate(capture::bindings_at_capture(*graph->symbols), env));
  codegen::Slots slots(plan.slot_count());
  std::unordered_map<uint32_t, at::Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph->inputs[i].defined() && plan.slot_of(graph->inputs[i]) != codegen::kNoSlot) slots[plan.slot_of(graph->inputs[i])] = inputs[i];
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  EXPECT_EQ(codegen::execute(plan, 0, slots, env), plan.steps().size());
  for (const ValueId value : graph->outputs) {
    if (value.defined()) values[value.index] = slots[plan.slot_of(value)];
  }
  return values;
}

/// The joint's results and gradients, computed by the two halves.
std::vector<at::Tensor> through(const Partitioned& parts, uint32_t results, const std::vector<at::Tensor>& inputs, uint32_t primals,
                                const Runner& run) {
  const auto forward = run(parts.forward, {inputs.begin(), inputs.begin() + primals});
  std::vector<at::Tensor> outputs, between;
  for (uint32_t i = 0; i < parts.forward->outputs.size(); ++i) {
    const ValueId value = parts.forward->outputs[i];
    const at::Tensor tensor = value.defined() ? forward.at(value.index) : at::Tensor();
    (i < results ? outputs : between).push_back(tensor);
  }
  between.insert(between.end(), inputs.begin() + primals, inputs.end());
  const auto backward = run(parts.backward, between);
  for (const ValueId value : parts.backward->outputs) outputs.push_back(value.defined() ? backward.at(value.index) : at::Tensor());
  return outputs;
}

void expect_same_values(const Joint& joint, const Partitioned& parts, const std::vector<at::Tensor>& inputs) {
  at::manual_seed(7);
  const auto whole = values_of(*joint.graph, inputs);
  for (const Runner& run : {Runner(replayed), Runner(planned)}) {
    at::manual_seed(7);
    const auto outputs = through(parts, joint.results, inputs, joint.primals, run);
    ASSERT_EQ(outputs.size(), joint.graph->outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ValueId value = joint.graph->outputs[i];
      ASSERT_EQ(outputs[i].defined(), value.defined());
      if (!value.defined()) continue;
      EXPECT_TRUE(outputs[i].equal(whole.at(value.index))) << codegen::names_of(joint)[value.index];
    }
  }
}

/// (a + b + c + d).cos().cos(), as in functorch's notebook.
struct Cosines : JointBuilder {
  Cosines() {
    for (auto& terms : primals) terms = primal(at::rand({2, 4}));
    const ValueId sum = add(add(add(primals[0], primals[1]), primals[2]), primals[3]);
    const ValueId once = unary("aten::cos", sum), twice = unary("aten::cos", once);
    const ValueId tangent = this->tangent(at::rand({2, 4}));
    const ValueId inner = mul(tangent, unary("aten::neg", unary("aten::sin", once)));
    const ValueId gradient = mul(inner, unary("aten::neg", unary("aten::sin", sum)));
    program = joint({twice}, {gradient, gradient, gradient, gradient});
  }
  ValueId primals[4];
  Joint program;
};

TEST(Partition, StandardSavesWhatTheFormulasRead) {
  const Cosines cosines;
  const Partitioned parts = standard(cosines.program);
  EXPECT_THAT(named(cosines.program, parts.forward->inputs), ElementsAre("primals_1", "primals_2", "primals_3", "primals_4"));
  EXPECT_THAT(named(cosines.program, parts.forward->outputs), ElementsAre("cos_1", "add_2", "cos"));
  EXPECT_THAT(named(cosines.program, parts.backward->inputs), ElementsAre("add_2", "cos", "tangents_1"));
  EXPECT_THAT(named(cosines.program, parts.backward->outputs), ElementsAre("mul_1", "mul_1", "mul_1", "mul_1"));
  EXPECT_THAT(made_by(cosines.program, *parts.backward), ElementsAre("sin", "neg", "mul", "sin_1", "neg_1", "mul_1"));
  expect_same_values(cosines.program, parts, cosines.inputs());
}

TEST(Partition, MinCutSavesOneTensorAndComputesTheCosineAgain) {
  const Cosines cosines;
  const Partitioned parts = min_cut(cosines.program);
  EXPECT_THAT(named(cosines.program, parts.forward->outputs), ElementsAre("cos_1", "add_2"));
  EXPECT_THAT(named(cosines.program, parts.backward->inputs), ElementsAre("add_2", "tangents_1"));
  EXPECT_THAT(made_by(cosines.program, *parts.backward), ElementsAre("cos", "sin", "neg", "mul", "sin_1", "neg_1", "mul_1"));
  EXPECT_EQ(parts.forward->symbols, cosines.program.graph->symbols);
  EXPECT_EQ(parts.backward->symbols, cosines.program.graph->symbols);
  expect_same_values(cosines.program, parts, cosines.inputs());
}

TEST(Partition, IsExplained) {
  const Cosines cosines;
  EXPECT_EQ(codegen::explain(cosines.program, min_cut(cosines.program)),
            "saves 1 tensor of 32 bytes; the standard partition saves 2 tensors of 64 bytes\n"
            "  add_2: \"f32[2, 4][4, 1]cpu\", 32 bytes: for cos (aten::cos), sin_1 (aten::sin)\n"
            "computes 1 op again: aten::cos\n");
  EXPECT_EQ(codegen::explain(cosines.program, min_cut(cosines.program, {.memory_budget = 0})),
            "saves 0 tensors of 0 bytes and 4 inputs; the standard partition saves 2 tensors of 64 bytes\n"
            "  primals_1: \"f32[2, 4][4, 1]cpu\", 32 bytes of an input: for add (aten::add)\n"
            "  primals_2: \"f32[2, 4][4, 1]cpu\", 32 bytes of an input: for add (aten::add)\n"
            "  primals_3: \"f32[2, 4][4, 1]cpu\", 32 bytes of an input: for add_1 (aten::add)\n"
            "  primals_4: \"f32[2, 4][4, 1]cpu\", 32 bytes of an input: for add_2 (aten::add)\n"
            "computes 4 ops again: aten::add (3), aten::cos\n");
  EXPECT_THAT(codegen::explain(cosines.program, standard(cosines.program)), HasSubstr("computes nothing again\n"));
}

TEST(Partition, PrimalsThatLiveOnAnywayCostNothing) {
  const Cosines cosines;
  const Partitioned parts = min_cut(cosines.program, {.lasting = {0, 1, 2, 3}});
  EXPECT_THAT(named(cosines.program, parts.saved), ElementsAre("primals_1", "primals_2", "primals_3", "primals_4"));
  expect_same_values(cosines.program, parts, cosines.inputs());
}

TEST(Partition, WhatTheUserBansIsNotComputedAgain) {
  const Cosines cosines;
  const auto is_cosine = [](const Instr& instr) { return instr.op->operator_name().name == "aten::cos"; };
  for (const double budget : {1.0, 0.0}) {
    const Partitioned parts = min_cut(cosines.program, {.memory_budget = budget, .ban = is_cosine});
    EXPECT_THAT(named(cosines.program, parts.saved), testing::Contains("cos"));
    EXPECT_THAT(made_by(cosines.program, *parts.backward), testing::Not(testing::Contains("cos")));
  }
}

TEST(Partition, ABudgetIsANumberFromZeroToOne) {
  const Cosines cosines;
  for (const double budget : {-0.1, 1.1, std::nan("")})
    EXPECT_THROW(min_cut(cosines.program, {.memory_budget = budget}), std::invalid_argument) << budget;
}

constexpr int64_t kRows = 64, kColumns = 32;

/// A layer's ops in sequence, and their formulas.
class Layer : public JointBuilder {
 public:
  struct Parts {
    bool product = false, bias = false, gelu = false, dropout = false, residual = false, norm = false;
  };
  explicit Layer(Parts parts) : parts_(parts) {
    const ValueId result = forward();
    program = joint({result}, backward());
  }
  Joint program;

 private:
  ValueId forward() {
    x_ = y_ = primal(at::randn({kRows, kColumns}));
    if (parts_.product) y_ = mm(x_, w_ = primal(at::randn({kColumns, kColumns})));
    if (parts_.bias) y_ = add(y_, primal(at::randn({kColumns})));
    linear_ = y_;
    if (parts_.gelu) y_ = call("aten::gelu", "", {of(y_), of("none")});
    if (parts_.dropout) {
      const auto dropped = calls("aten::native_dropout", "", {of(y_), of(0.1), of(true)});
      y_ = dropped[0];
      mask_ = dropped[1];
    }
    if (parts_.residual) y_ = add(y_, primal(at::randn({kRows, kColumns})));
    if (!parts_.norm) return y_;
    weight_ = primal(at::randn({kColumns}));
    shift_ = primal(at::randn({kColumns}));
    norm_ = calls("aten::native_layer_norm", "", {of(y_), of(shape_), of(weight_), of(shift_), of(1e-5)});
    return norm_[0];
  }

  std::vector<ValueId> backward() {
    ValueId g = tangent(at::randn({kRows, kColumns}));
    std::vector<ValueId> gradients;
    if (parts_.norm) {
      const auto norm =
          calls("aten::native_layer_norm_backward", "",
                {of(g), of(y_), of(shape_), of(norm_[1]), of(norm_[2]), of(weight_), of(shift_), of(c10::List<bool>({true, true, true}))});
      gradients = {norm[1], norm[2]};
      g = norm[0];
    }
    if (parts_.residual) gradients.push_back(g);
    if (parts_.dropout) g = call("aten::native_dropout_backward", "", {of(g), of(mask_), of(1 / 0.9)});
    if (parts_.gelu) g = call("aten::gelu_backward", "", {of(g), of(linear_), of("none")});
    if (parts_.bias) gradients.push_back(sum(g, 0));
    if (parts_.product) {
      gradients.push_back(mm(t(x_), g));
      g = mm(g, t(w_));
    }
    gradients.push_back(g);
    return gradients;
  }

  const Parts parts_;
  const std::vector<int64_t> shape_ = {kColumns};
  ValueId x_, w_, linear_, mask_, y_, weight_, shift_;
  capture::ValueIds norm_;
};

constexpr Layer::Parts kWholeLayer = {.product = true, .bias = true, .gelu = true, .dropout = true, .residual = true, .norm = true};

// What its min_cut_rematerialization_partition saves of the same functions, views of inputs not counted.
TEST(Partition, SavesNoMoreThanPyTorchsPartitioner) {
  const std::pair<Layer::Parts, int64_t> cases[] = {
      {{.bias = true, .gelu = true}, 0},
      {{.bias = true, .dropout = true}, 2048},
      {{.bias = true, .gelu = true, .dropout = true}, 2048},
      {{.bias = true, .dropout = true, .residual = true, .norm = true}, 10752},
      {kWholeLayer, 18944},
  };
  for (const auto& [layer_parts, bytes] : cases) {
    const Layer layer(layer_parts);
    const Partitioned parts = min_cut(layer.program);
    EXPECT_LE(bytes_of(layer.program, parts), bytes) << codegen::explain(layer.program, parts);
    expect_same_values(layer.program, parts, layer.inputs());
    expect_same_values(layer.program, standard(layer.program), layer.inputs());
  }
}

TEST(Partition, OfALayerKeepsItsProductAndItsRandomNumbers) {
  const Layer layer(kWholeLayer);
  const Partitioned parts = min_cut(layer.program);
  EXPECT_THAT(named(layer.program, parts.saved), testing::Contains("native_dropout_1"));
  for (const char* op : {"mm", "native_dropout", "native_layer_norm"})
    EXPECT_THAT(made_by(layer.program, *parts.backward), testing::Not(testing::Contains(op)));
  EXPECT_LE(bytes_of(layer.program, parts), bytes_of(layer.program, standard(layer.program)));
  expect_same_values(layer.program, standard(layer.program), layer.inputs());
  expect_same_values(layer.program, parts, layer.inputs());
}

TEST(Partition, OnASmallerBudgetProductsAreComputedAgainAndRandomNumbersAreNot) {
  const Layer layer(kWholeLayer);
  const Partitioned parts = min_cut(layer.program, {.memory_budget = 0});
  EXPECT_THAT(made_by(layer.program, *parts.backward), testing::Contains("mm"));
  EXPECT_THAT(made_by(layer.program, *parts.backward), testing::Not(testing::Contains("native_dropout")));
  EXPECT_LT(bytes_of(layer.program, parts), bytes_of(layer.program, min_cut(layer.program)) * 3 / 4);
  expect_same_values(layer.program, parts, layer.inputs());
}

TEST(Partition, ASoftmaxIsSavedAndWhatLiesAroundItIsComputedAgain) {
  JointBuilder builder;
  const ValueId q = builder.primal(at::randn({16, 16})), k = builder.primal(at::randn({16, 16}));
  const ValueId scores = builder.mm(q, k);
  const ValueId scaled = builder.call("aten::mul", "Scalar", {builder.of(scores), builder.of(0.25)});
  const ValueId softmax = builder.call("aten::_softmax", "", {builder.of(scaled), builder.of(-1), builder.of(false)});
  const ValueId result = builder.unary("aten::cos", softmax);
  const ValueId tangent = builder.tangent(at::randn({16, 16}));
  const ValueId inner = builder.mul(tangent, builder.unary("aten::neg", builder.unary("aten::sin", softmax)));
  const ValueId gradient =
      builder.call("aten::_softmax_backward_data", "", {builder.of(inner), builder.of(softmax), builder.of(-1), builder.of(int64_t{6})});
  const Joint joint = builder.joint({result}, {builder.mm(gradient, builder.t(k)), builder.mm(builder.t(q), gradient)});
  const Partitioned parts = min_cut(joint);
  EXPECT_THAT(named(joint, parts.saved), ElementsAre("primals_1", "primals_2", "_softmax"));
  expect_same_values(joint, parts, builder.inputs());
}

TEST(Partition, WhatANormReadsIsComputedAgainInItsKernel) {
  const Layer layer({.product = true, .gelu = true, .norm = true});
  EXPECT_THAT(named(layer.program, standard(layer.program).saved),
              ElementsAre("primals_1", "primals_2", "primals_3", "primals_4", "mm", "gelu", "native_layer_norm_1", "native_layer_norm_2"));
  const Partitioned parts = min_cut(layer.program);
  EXPECT_THAT(named(layer.program, parts.saved),
              ElementsAre("primals_1", "primals_2", "primals_3", "primals_4", "mm", "native_layer_norm_1", "native_layer_norm_2"));
  expect_same_values(layer.program, parts, layer.inputs());
}

TEST(Partition, AMaskIsSavedInPlaceOfWhatItIsComputedFrom) {
  JointBuilder builder;
  const ValueId x = builder.primal(at::randn({64})), w = builder.primal(at::randn({64, 64}));
  const ValueId product = builder.call("aten::mv", "", {builder.of(w), builder.of(x)});
  const ValueId result = builder.unary("aten::relu", product);
  const ValueId tangent = builder.tangent(at::randn({64}));
  const ValueId mask = builder.call("aten::gt", "Scalar", {builder.of(product), builder.of(0)});
  const Joint joint = builder.joint({result}, {builder.mul(tangent, mask)});
  EXPECT_THAT(named(joint, standard(joint).saved), ElementsAre("mv"));
  const Partitioned parts = min_cut(joint);
  EXPECT_THAT(named(joint, parts.saved), ElementsAre("gt"));
  EXPECT_EQ(bytes_of(joint, parts), 64);
  EXPECT_THAT(made_by(joint, *parts.backward), ElementsAre("mul"));
  expect_same_values(joint, parts, builder.inputs());
}

TEST(Partition, ViewsAreTakenAgainOfWhatIsSaved) {
  JointBuilder builder;
  const ValueId x = builder.primal(at::randn({4, 4}));
  const ValueId cosine = builder.unary("aten::cos", x), turned = builder.t(cosine), turned_primal = builder.t(x);
  const ValueId result = builder.add(turned, turned_primal);
  const ValueId tangent = builder.tangent(at::randn({4, 4}));
  const ValueId gradient = builder.mul(builder.mul(builder.mul(tangent, cosine), turned), turned_primal);
  const Joint joint = builder.joint({result}, {gradient});
  const Partitioned parts = split(joint, {turned_primal, turned, cosine, turned});
  EXPECT_THAT(named(joint, parts.saved), ElementsAre("primals_1", "cos"));
  EXPECT_THAT(named(joint, standard(joint).saved), ElementsAre("primals_1", "cos"));
  EXPECT_THAT(made_by(joint, *parts.backward), ElementsAre("mul", "t", "mul_1", "t_1", "mul_2"));
  EXPECT_EQ(bytes_of(joint, parts), 64);
  expect_same_values(joint, parts, builder.inputs());
  // Alone it stays a view.
  EXPECT_THAT(named(joint, split(joint, {turned}).saved), ElementsAre("primals_1", "t"));
}

TEST(Partition, EffectsAndRandomNumbersHappenOnceInTheForward) {
  JointBuilder builder;
  const ValueId x = builder.primal(at::rand({8}));
  builder.call("aten::bernoulli", "p", {builder.of(x), builder.of(0.5), builder.none()});  // advances the generator
  const ValueId written = builder.mutate(x, "aten::bernoulli_", "float", {builder.of(0.5), builder.none()});
  const ValueId plain = builder.mutate(x, "aten::cos_", "", {});
  const ValueId tangent = builder.tangent(at::rand({8}));
  const Joint joint = builder.joint({}, {builder.mul(builder.mul(tangent, written), plain)});
  const Partitioned parts = split(joint, {});
  EXPECT_THAT(named(joint, parts.saved), ElementsAre("primals_1", "bernoulli_1"));
  EXPECT_THAT(made_by(joint, *parts.forward), ElementsAre("bernoulli", "bernoulli_1"));
  EXPECT_THAT(made_by(joint, *parts.backward), ElementsAre("mul", "cos", "mul_1"));
  expect_same_values(joint, parts, builder.inputs());
}

TEST(Partition, AnOpWithSeveralResultsIsSavedOrComputedAgainAsAWhole) {
  JointBuilder builder;
  const ValueId x = builder.primal(at::rand({8, 8}));
  const auto both =
      builder.calls("aten::var_mean", "correction", {builder.of(x), builder.of(std::vector<int64_t>{1}), builder.of(0), builder.of(true)});
  const ValueId tangent = builder.tangent(at::rand({8, 1}));
  const Joint joint = builder.joint({both[1]}, {builder.mul(builder.mul(tangent, both[0]), both[1])});
  EXPECT_THAT(named(joint, standard(joint).saved), ElementsAre("var_mean", "var_mean_1"));
  const Partitioned parts = split(joint, {both[1]});
  EXPECT_THAT(named(joint, parts.saved), ElementsAre("primals_1"));
  expect_same_values(joint, parts, builder.inputs());
}

TEST(Partition, RefusesToSaveWhatTheForwardCannotHave) {
  const Cosines cosines;
  const auto gradient = cosines.program.gradient_values()[0];
  EXPECT_THROW(split(cosines.program, {gradient}), std::invalid_argument);
  EXPECT_THROW(split(cosines.program, {cosines.program.tangent_values()[0]}), std::invalid_argument);
  EXPECT_THROW(split(cosines.program, {{12345}}), std::invalid_argument);
  EXPECT_THAT(split(cosines.program, {ValueId()}).saved.size(), 4U);
}

// A joint program whose second primal holds what the forward computes as tanh(x).
struct WithKnown {
  explicit WithKnown(const at::Tensor& held) {
    x = b.primal(at::randn({4, 3}));
    known = b.primal(held);
    computed = b.unary("aten::tanh", b.unary("aten::exp", x));
    result = b.unary("aten::sin", computed);
  }
  Joint joint(std::vector<ValueId> results, const std::vector<ValueId>& gradients = {}) {
    Joint joint = b.joint(std::move(results), gradients);
    joint.known = {{computed, known}};
    return joint;
  }
  JointBuilder b;
  ValueId x, known, computed, result;
};

TEST(KnownValues, AreReadAndNotComputed) {
  WithKnown w(at::randn({4, 3}));
  const ValueId tangent = w.b.tangent(at::randn({4, 3}));
  const Joint joint = w.joint({w.result}, {w.b.mul(tangent, w.computed)});
  const Joint made = codegen::with_known_values(joint);
  EXPECT_THAT(made_by(made, *made.graph), ElementsAre("sin", "mul"));
  EXPECT_EQ(made.forward_end, 1u);
  EXPECT_EQ(made.graph->instrs[0].args[0].values[0], w.known);
  EXPECT_EQ(made.graph->instrs[1].args[1].values[0], w.known);
  EXPECT_EQ(codegen::with_known_values(made).graph->instrs.size(), 2u);
}

TEST(KnownValues, AreComputedIfReturned) {
  WithKnown w(at::randn({4, 3}));
  const Joint joint = w.joint({w.result, w.computed});
  EXPECT_EQ(codegen::with_known_values(joint).graph, joint.graph);
}

TEST(KnownValues, AreComputedIfTheKnownTensorHasAnotherLayout) {
  for (const at::Tensor& held : {at::randn({3, 4}).t(), at::randn({4, 3}, at::kDouble)}) {
    WithKnown w(held);
    const Joint joint = w.joint({w.result});
    EXPECT_EQ(codegen::with_known_values(joint).graph, joint.graph);
  }
}

// The derivative of a maximum looks for the element that equals it.
TEST(KnownValues, AreComputedIfCompared) {
  WithKnown w(at::randn({4, 3}));
  const ValueId is_equal = w.b.call("aten::eq", "Tensor", {JointBuilder::of(w.computed), JointBuilder::of(w.result)});
  const Joint joint = w.joint({w.result, is_equal});
  EXPECT_EQ(codegen::with_known_values(joint).graph, joint.graph);
}

TEST(Partition, OfAlmostNothing) {
  JointBuilder empty;
  const Joint none = empty.joint({}, {});
  for (const Partitioned& parts : {standard(none), min_cut(none), min_cut(none, {.memory_budget = 0})}) {
    EXPECT_THAT(parts.saved, IsEmpty());
    EXPECT_THAT(parts.forward->instrs, IsEmpty());
    EXPECT_THAT(parts.backward->outputs, IsEmpty());
  }
  EXPECT_EQ(codegen::explain(none, standard(none)),
            "saves 0 tensors of 0 bytes; the standard partition saves 0 tensors of 0 bytes\ncomputes nothing again\n");

  JointBuilder builder;
  const ValueId x = builder.primal(at::rand({3})), y = builder.primal(at::rand({3}));
  const ValueId tangent = builder.tangent(at::rand({3}));
  const Joint joint = builder.joint({x, ValueId(), x}, {tangent, ValueId(), y});
  for (const Partitioned& parts : {standard(joint), min_cut(joint), min_cut(joint, {.memory_budget = 0})}) {
    EXPECT_THAT(named(joint, parts.forward->outputs), ElementsAre("primals_1", "None", "primals_1", "primals_2"));
    EXPECT_THAT(named(joint, parts.backward->inputs), ElementsAre("primals_2", "tangents_1"));
    EXPECT_THAT(named(joint, parts.backward->outputs), ElementsAre("tangents_1", "None", "primals_2"));
    expect_same_values(joint, parts, builder.inputs());
  }
}

TEST(Partition, InputsThatNobodyReadsStayUndefinedInTheirPlaces) {
  const Cosines cosines;
  auto graph = std::make_shared<Graph>(*cosines.program.graph);
  graph->inputs.insert(graph->inputs.begin() + 1, ValueId());
  graph->inputs.push_back(ValueId());
  Joint joint = cosines.program;
  joint.graph = graph;
  ++joint.primals;
  for (const Partitioned& parts : {standard(joint), min_cut(joint), min_cut(joint, {.memory_budget = 0})}) {
    ASSERT_EQ(parts.forward->inputs.size(), 5U);
    EXPECT_FALSE(parts.forward->inputs[1].defined());
    EXPECT_FALSE(parts.backward->inputs.back().defined());
  }
}

TEST(Partition, OfDynamicSizesGoesByThoseAtCapture) {
  const Cosines cosines;
  auto graph = std::make_shared<Graph>(*cosines.program.graph);
  for (size_t i = 0; i < graph->values.size(); ++i) graph->values.edit(i).sizes[0] = graph->symbols->size_symbol(2);
  Joint joint = cosines.program;
  joint.graph = graph;
  EXPECT_THAT(named(joint, min_cut(joint).saved), ElementsAre("add_2"));
  EXPECT_EQ(bytes_of(joint, min_cut(joint)), 32);
}

TEST(Partition, OfRandomProgramsComputesTheSameBitsAndSavesNoMoreThanTheStandard) {
  constexpr uint32_t kPrograms = 400;
  int fewer = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE(testing::Message() << "program " << seed);
    const auto [joint, inputs] = random_joint(seed);
    expect_same_values(joint, standard(joint), inputs);
    int64_t bytes = bytes_of(joint, standard(joint));
    fewer += bytes_of(joint, min_cut(joint)) < bytes ? 1 : 0;
    for (const double budget : {1.0, 0.9, 0.75, 0.5, 0.3, 0.1, 0.0}) {
      const Partitioned parts = min_cut(joint, {.memory_budget = budget});
      EXPECT_LE(bytes_of(joint, parts), bytes) << "budget " << budget;
      bytes = bytes_of(joint, parts);
      expect_same_values(joint, parts, inputs);
    }
    if (HasFailure()) {
      ADD_FAILURE() << joint.graph->print();
      return;
    }
  }
  EXPECT_GT(fewer, 50);
}

TEST(Partition, ABudgetOfNothingSavesAsFewBytesAsAnyChoice) {
  constexpr size_t kMost = 10;
  int programs = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Joint joint = random_joint(seed).joint;
    const codegen::JointUses uses(joint);
    std::vector<ValueId> choices;
    for (const Instr& instr : joint.graph->instrs) {
      for (const ValueId value : instr.outputs) {
        if (!uses.is_of_backward(value) && !uses.viewed_by(value).defined()) choices.push_back(value);
      }
    }
    if (choices.size() > kMost) continue;
    ++programs;
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (uint32_t set = 0; set < 1u << choices.size(); ++set) {
      std::vector<ValueId> saved;
      for (size_t i = 0; i < choices.size(); ++i) {
        if (set >> i & 1u) saved.push_back(choices[i]);
      }
      fewest = std::min(fewest, bytes_of(joint, split(joint, saved)));
    }
    EXPECT_EQ(bytes_of(joint, min_cut(joint, {.memory_budget = 0})), fewest) << "program " << seed << "\n" << joint.graph->print();
  }
  EXPECT_GT(programs, 30);
}

TEST(Partition, OfEqualProgramsIsEqual) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const auto one = random_joint(seed).joint, other = random_joint(seed).joint;
    for (const double budget : {1.0, 0.5, 0.0}) {
      const Partitioned a = min_cut(one, {.memory_budget = budget}), b = min_cut(other, {.memory_budget = budget});
      EXPECT_EQ(a.saved, b.saved);
      EXPECT_EQ(a.forward->print(), b.forward->print());
      EXPECT_EQ(a.backward->print(), b.backward->print());
    }
  }
}

/// Ten thousand instrs: a chain of cosines, `stride` of them between two products.
Joint long_chain(JointBuilder& builder, size_t stride) {
  constexpr size_t kLinks = 2500;
  const ValueId w = builder.primal(at::rand({2, 2}));
  ValueId x = builder.primal(at::rand({2, 2}));
  const ValueId start = x;
  std::vector<ValueId> links = {x};
  for (size_t i = 0; i < kLinks; ++i) {
    x = i % stride == stride - 1 ? builder.mm(x, w) : builder.unary("aten::cos", x);
    if (i % 97 == 96) x = builder.add(x, start);
    links.push_back(x);
  }
  const ValueId result = x;
  ValueId gradient = builder.tangent(at::rand({2, 2}));
  for (size_t i = kLinks; i-- > 0;) {
    gradient = i % stride == stride - 1 ? builder.mm(gradient, builder.t(w))
                                        : builder.mul(gradient, builder.unary("aten::neg", builder.unary("aten::sin", links[i])));
  }
  return builder.joint({result}, {ValueId(), gradient});
}

TEST(Partition, OfTenThousandInstrsTakesWellUnderASecond) {
  for (const size_t stride : {size_t{1'000'000}, size_t{50}, size_t{3}}) {
    JointBuilder builder;
    const Joint joint = long_chain(builder, stride);
    EXPECT_GT(joint.graph->instrs.size(), 6000U);
    for (const double budget : {1.0, 0.5, 0.0}) {
      const auto start = std::chrono::steady_clock::now();
      const Partitioned parts = min_cut(joint, {.memory_budget = budget});
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      EXPECT_LT(time.count(), 2) << "stride " << stride << ", budget " << budget;  // with sanitizers and a busy machine
    }
    expect_same_values(joint, min_cut(joint), builder.inputs());
  }
}

}  // namespace
}  // namespace hindcast::tests::partition_test
