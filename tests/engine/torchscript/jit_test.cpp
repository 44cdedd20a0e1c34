// jit_prepare() and jit_load(): backwards of TorchScript modules are captured like those of C++ code.

#include "tests/engine/torchscript/script_modules.h"
#include "tests/support/log_capture.h"

#include <hindcast/hindcast.h>
#include <hindcast/jit.h>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace hindcast::tests {
namespace {

std::vector<at::Tensor> gradients(torch::jit::Module& module, const at::Tensor& x) {
  return torch::autograd::grad({module.forward({x}).toTensor()}, {x, module.attr("weight").toTensor()});
}

void expect_equal(const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) EXPECT_TRUE(torch::equal(given[i], expected[i])) << "gradient " << i;
}

bool has_opaque_nodes_of_torchscript() {
  for (const auto& [name, count] : stats().opaque_nodes) {
    if (name.find("DifferentiableGraphBackward") != std::string::npos) return true;
  }
  return false;
}

TEST(Jit, ReportAndLogNameNodesThatHideOperators) {
  reset();
  LogCapture logs("");
  auto module = script_module(kMlp);
  auto guard = enable(compilers::eager());
  for (int i = 0; i < 6; ++i) gradients(module, rows(5));
  ASSERT_TRUE(has_opaque_nodes_of_torchscript()) << report();
  EXPECT_EQ(logs.count("warning: TorchScript's optimizer hides operators"), 1);
  EXPECT_NE(report().find("hindcast::jit_prepare(module)"), std::string::npos) << report();
}

TEST(Jit, PreparedModulesHaveNodesOfTheirOwn) {
  reset();
  LogCapture logs("");
  auto module = script_module(kMlp);
  auto stock = stock_module(kMlp);
  jit_prepare(module);
  for (int i = 0; i < 6; ++i) {
    const auto expected = gradients(stock, rows(5, i));
    auto guard = enable(compilers::eager());
    expect_equal(gradients(module, rows(5, i)), expected);
  }
  EXPECT_FALSE(has_opaque_nodes_of_torchscript());
  EXPECT_EQ(stats().hits, 5);
  EXPECT_EQ(logs.count("TorchScript"), 0);
  EXPECT_EQ(report().find("jit_prepare"), std::string::npos);
}

TEST(Jit, GradientsAreNearThoseOfLibTorchsOptimizer) {
  auto module = jit_prepare(script_module(kMlp)), optimized = script_module(kMlp);
  for (int i = 0; i < 4; ++i) {
    const auto given = gradients(module, rows(5, i)), expected = gradients(optimized, rows(5, i));
    for (size_t k = 0; k < given.size(); ++k) EXPECT_TRUE(torch::allclose(given[k], expected[k], 1e-5, 1e-6)) << "gradient " << k;
  }
}

TEST(Jit, SizesBecomeDynamic) {
  reset();
  auto module = jit_prepare(script_module(kMlp));
  auto stock = stock_module(kMlp);
  for (const int64_t count : {5, 7, 3, 11, 40, 2, 9, 64, 5, 13, 100, 6}) {
    const auto expected = gradients(stock, rows(count));
    auto guard = enable(compilers::eager());
    expect_equal(gradients(module, rows(count)), expected);
  }
  EXPECT_LE(stats().misses, 2) << report();
}

TEST(Jit, SubmodulesAndFrozenModulesArePrepared) {
  reset();
  torch::jit::Module outer("Outer");
  outer.register_module("inner", script_module(kMlp));
  outer.define("def forward(self, x: Tensor) -> Tensor:\n    return self.inner.forward(torch.sin(x))\n");
  outer.eval();
  auto frozen = torch::jit::freeze(outer);
  for (torch::jit::Module* module : {&outer, &frozen}) {
    jit_prepare(*module);
    auto guard = enable(compilers::eager());
    for (int i = 0; i < 4; ++i) {
      const auto x = rows(5);
      module->forward({x}).toTensor().backward();
      const auto y = rows(5);
      // A method of a submodule, called directly.
      if (module == &outer) module->attr("inner").toModule().forward({y}).toTensor().backward();
    }
  }
  EXPECT_FALSE(has_opaque_nodes_of_torchscript()) << report();
}

TEST(Jit, LoadsFromStreamsAndFiles) {
  auto saved = script_module(kMlp);
  std::stringstream bytes;
  saved.save(bytes);
  auto module = jit_load(bytes);
  reset();
  {
    auto guard = enable(compilers::eager());
    for (int i = 0; i < 4; ++i) gradients(module, rows(5));
  }
  EXPECT_FALSE(has_opaque_nodes_of_torchscript());
  auto stock = stock_module(kMlp);
  expect_equal(gradients(module, rows(5)), gradients(stock, rows(5)));
  EXPECT_THROW(jit_load("/no/such/file.pt"), c10::Error);
}

TEST(Jit, AutocastStillCasts) {
  auto module = jit_prepare(script_module("def forward(self, x: Tensor) -> Tensor:\n    return torch.mm(x, self.weight)\n"));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto type = module.forward({rows(3)}).toTensor().scalar_type();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(type, at::autocast::get_autocast_dtype(at::kCPU));
}

}  // namespace
}  // namespace hindcast::tests
