// The tutorial's function: its programs as text, what is saved, its gradients.

#include <hindcast/aot.h>
#include <hindcast/graph.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor fn(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d) { return (a + b + c + d).cos().cos(); }

Tensors leaves() {
  Tensors made;
  for (int i = 0; i < 4; ++i) made.push_back(at::randn({2, 4}).set_requires_grad(true));
  return made;
}

template <class Function>
Tensors gradients(const Function& function, const Tensors& in) {
  for (const at::Tensor& leaf : in) leaf.mutable_grad() = at::Tensor();
  function(in[0], in[1], in[2], in[3]).sum().backward();
  Tensors given;
  for (const at::Tensor& leaf : in) given.push_back(leaf.grad());
  return given;
}

class TheTutorialsFunction : public testing::TestWithParam<Partition> {};

TEST_P(TheTutorialsFunction, GoesThroughACompilerOfOnesOwn) {
  std::vector<std::string> printed;
  AotOptions options;
  options.partition = GetParam();
  const auto printing = [&](const std::shared_ptr<const Graph>& program, const Tensors& examples) -> ProgramFunction {
    EXPECT_EQ(examples.size(), program->inputs.size());
    printed.push_back(program->print());
    return [program](const Tensors& inputs) { return run_program(*program, inputs); };
  };
  options.fw_compiler = options.bw_compiler = printing;
  const auto compiled = aot_function(fn, options);
  const Tensors in = leaves(), expected = gradients(fn, in);
  for (int call = 0; call < 3; ++call) {
    const Tensors given = gradients(compiled, in);
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(given[i].equal(expected[i])) << "call " << call;
  }
  EXPECT_EQ(compiled.stats().hits, 2U);
  ASSERT_EQ(printed.size(), 2U) << "a forward and a backward, once";
}

TEST_P(TheTutorialsFunction, HasGradientsThatShareNoMemory) {
  AotOptions options;
  options.partition = GetParam();
  options.async = false;
  const auto compiled = aot_function(fn, options);
  const Tensors in = leaves(), expected = gradients(fn, in);
  for (int call = 0; call < 3; ++call) {
    const Tensors given = gradients(compiled, in);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(at::allclose(given[i], expected[i], 1e-5, 1e-6));
      given[i].zero_();  // visible to no other call
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Partitions, TheTutorialsFunction, testing::Values(partition::standard, partition::min_cut));

TEST(TheTutorialsPrograms, AreTheTutorials) {
  const auto programs_of = [](Partition partition) {
    AotOptions options;
    options.partition = std::move(partition);
    const auto compiled = aot_function(fn, options);
    gradients(compiled, leaves());
    return get_graphs(compiled).at(0);
  };
  const AotPrograms standard = programs_of(partition::standard), min_cut = programs_of(partition::min_cut);
  EXPECT_THAT(standard.forward->print(), testing::HasSubstr("return [cos_1, add_2, cos]"));
  EXPECT_THAT(min_cut.forward->print(), testing::HasSubstr("return [cos_1, add_2]"));
  EXPECT_EQ(standard.backward->inputs.size(), 3U) << "add_2, cos, tangents_1";
  EXPECT_EQ(min_cut.backward->inputs.size(), 2U) << "add_2, tangents_1";
  EXPECT_THAT(min_cut.backward->print(), testing::HasSubstr("torch.ops.aten.cos.default(add_2)"));
  EXPECT_THAT(min_cut.explanation, testing::HasSubstr("computes 1 op again: aten::cos"));
  for (const AotPrograms& programs : {standard, min_cut}) {
    EXPECT_THAT(programs.backward->print(), testing::HasSubstr("return [mul_1, mul_1, mul_1, mul_1]"));
  }
}

TEST(RunProgram, RefusesTheWrongNumberOfInputs) {
  const auto compiled = aot_function(fn);
  gradients(compiled, leaves());
  EXPECT_THROW(run_program(*get_graphs(compiled).at(0).forward, {at::ones({2, 4})}), std::invalid_argument);
}

}  // namespace
}  // namespace hindcast::tests
