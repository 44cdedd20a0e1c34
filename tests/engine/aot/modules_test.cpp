// Compiled modules, compared with copies of themselves: several steps of training, then evaluation.

#include "tests/engine/aot/aot_grads.h"

#include <hindcast/graph.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace hindcast::tests {
namespace {

struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) { return head(at::max_pool2d(norm(conv(x)).relu_(), 2).flatten(1)); }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 5, 3).padding(1)};
  torch::nn::BatchNorm2d norm{5};
  torch::nn::Linear head{5 * 16, 4};
};
TORCH_MODULE(ConvNet);

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("up", up);
    register_module("down", down);
    register_module("drop", drop);
  }
  at::Tensor forward(at::Tensor x) {
    const auto b = x.size(0), t = x.size(1);
    const auto parts = qkv(norm1(x)).view({b, t, 3, 2, 4}).permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    x = x + drop(out(mixed.transpose(1, 2).reshape({b, t, 8})));
    return x + drop(down(at::gelu(up(norm2(x)))));
  }
  torch::nn::LayerNorm norm1{torch::nn::LayerNormOptions({8})}, norm2{torch::nn::LayerNormOptions({8})};
  torch::nn::Linear qkv{8, 24}, out{8, 8}, up{8, 32}, down{32, 8};
  torch::nn::Dropout drop{0.1};
};
TORCH_MODULE(Block);

template <class Module>
Module copy_of(const Module& module) {
  std::stringstream bytes;
  torch::save(module, bytes);
  Module copy;
  torch::load(copy, bytes);
  return copy;
}

void expect_near(const at::Tensor& given, const at::Tensor& expected, double tolerance, const std::string& where) {
  const at::Tensor a = given.detach().to(at::kDouble), b = expected.detach().to(at::kDouble);
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance * std::max(1.0, b.abs().max().item<double>())) << where;
}

template <class Module>
void expect_trains_like_eager(const std::function<at::Tensor()>& inputs, bool bitwise, Partition how) {
  torch::manual_seed(3);
  const Module first;
  Module eager = copy_of(first), original = copy_of(first);
  AotOptions options;
  options.async = false;
  options.partition = std::move(how);
  options.fw_compiler = options.bw_compiler = bitwise ? compilers::eager() : compilers::fused();
  options.fallback_random = true;  // eager's bits are expected
  const auto compiled = aot_module(original, options);
  torch::optim::SGD of_eager(eager->parameters(), 0.05), of_compiled(original->parameters(), 0.05);
  const double tolerance = bitwise ? 0 : 2e-4;
  const auto step = [&](auto& module, torch::optim::Optimizer& optimizer, uint64_t seed) {
    torch::manual_seed(seed);
    const auto x = inputs();
    optimizer.zero_grad();
    const auto loss = module->forward(x).square().mean();
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
  const auto compiled_step = [&](torch::optim::Optimizer& optimizer, uint64_t seed) {
    torch::manual_seed(seed);
    const auto x = inputs();
    optimizer.zero_grad();
    const auto loss = compiled(x).square().mean();
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
  for (uint64_t i = 0; i < 5; ++i)
    expect_near(compiled_step(of_compiled, i), step(eager, of_eager, i), tolerance, "step " + std::to_string(i));
  EXPECT_EQ(compiled.stats().hits, 4U);
  const auto parameters = eager->named_parameters(), buffers = eager->named_buffers();
  for (const auto& item : original->named_parameters()) expect_near(item.value(), parameters[item.key()], tolerance, item.key());
  for (const auto& item : original->named_buffers()) {
    expect_near(item.value(), buffers[item.key()], tolerance, item.key());
    EXPECT_EQ(item.value()._version(), buffers[item.key()]._version()) << item.key();
  }
  eager->eval();
  original->eval();
  const torch::NoGradGuard no_grad;
  torch::manual_seed(9);
  const auto x = inputs();
  for (int i = 0; i < 2; ++i) expect_near(compiled(x), eager->forward(x), tolerance, "evaluation");
}

TEST(AotModule, ConvNetTrains) {
  for (const bool bitwise : {true, false}) {
    expect_trains_like_eager<ConvNet>([] { return torch::randn({6, 3, 8, 8}); }, bitwise, partition::standard);
    expect_trains_like_eager<ConvNet>([] { return torch::randn({6, 3, 8, 8}); }, bitwise, partition::min_cut);
  }
}

TEST(AotModule, TransformerBlockTrains) {
  for (const bool bitwise : {true, false}) {
    expect_trains_like_eager<Block>([] { return torch::randn({2, 5, 8}); }, bitwise, partition::standard);
    expect_trains_like_eager<Block>([] { return torch::randn({2, 5, 8}); }, bitwise, partition::min_cut);
  }
}

TEST(AotModule, ProgramsNameItsTensors) {
  ConvNet net;
  const auto compiled = aot_module(net);
  compiled(torch::randn({2, 3, 8, 8})).sum().backward();
  const auto programs = compiled.core().programs();
  ASSERT_EQ(programs.size(), 1U);
  std::set<std::string> expected = {"primals_1"};
  for (const auto& item : net->named_parameters()) expected.insert(item.key());
  for (std::string name : expected) {
    std::replace(name.begin(), name.end(), '.', '_');
    EXPECT_THAT(programs[0].forward->print(), testing::HasSubstr(name + ": ")) << name;
  }
}

int living_squares = 0;

struct SquareImpl : torch::nn::Module {
  SquareImpl() { ++living_squares; }
  ~SquareImpl() override { --living_squares; }
  SquareImpl(const SquareImpl&) = delete;
  SquareImpl& operator=(const SquareImpl&) = delete;
  at::Tensor forward(const at::Tensor& x) {
    EXPECT_EQ(living_squares, 1);
    return x * x * weight;
  }
  at::Tensor weight = register_parameter("weight", torch::full({1}, 3.0));
};
TORCH_MODULE(Square);

// The module may be destroyed before its backward, or a second one, is called.
TEST(AotModule, BackwardsOutliveIt) {
  const auto x = torch::arange(3, torch::kFloat).requires_grad_();
  for (const int calls : {1, 2}) {  // the last one is traced, or runs a program
    at::Tensor y;
    {
      const auto compiled = aot_module(Square());
      for (int call = 0; call < calls; ++call) {
        y = compiled(x).sum();
        if (call + 1 < calls) y.backward();
      }
    }
    const auto first = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    EXPECT_TRUE(first.equal(6 * x)) << calls;
    EXPECT_TRUE(torch::autograd::grad({first.sum()}, {x})[0].equal(torch::full({3}, 6.0))) << calls;
  }
  EXPECT_EQ(living_squares, 0);
}

struct WithActivation : torch::nn::Module {
  WithActivation() { activation = register_module("activation", torch::nn::Sequential(torch::nn::Tanh())); }
  at::Tensor forward(const at::Tensor& x) { return activation->forward(x * 2); }
  torch::nn::Sequential activation{nullptr};
};

TEST(AotModule, ASubmoduleWithoutParametersThatIsReplacedIsSeen) {
  const auto module = std::make_shared<WithActivation>();
  AotOptions options;
  options.async = false;
  const auto net = aot_module(module, options);
  const auto check = [&] {
    for (int call = 0; call < 3; ++call) {
      const auto x = torch::randn({5}).requires_grad_();
      const at::Tensor given = net(x), expected = module->forward(x);
      EXPECT_TRUE(given.allclose(expected)) << call;
      EXPECT_TRUE(torch::autograd::grad({given.sum()}, {x})[0].allclose(torch::autograd::grad({expected.sum()}, {x})[0]));
    }
  };
  check();
  module->activation = module->replace_module("activation", torch::nn::Sequential(torch::nn::ReLU()));
  check();
  EXPECT_EQ(net.stats().traces, 2U);
}

// A lambda that captures a const holder has a const member, which is copied when the lambda is moved.
TEST(AotModule, AConstHolderIsCapturedByALambda) {
  const Square square(std::make_shared<SquareImpl>());
  const auto x = torch::randn({3}).requires_grad_();
  const auto f = aot_function([square](const at::Tensor& a) { return square.ptr()->forward(a).sum(); });
  const auto g = aot_function([square](const at::Tensor& a) mutable { return square.ptr()->forward(a).sum(); });
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(f(x).equal(g(x)));
}

TEST(AotModule, ReloadingAndAnotherDtypeAreSeen) {
  torch::manual_seed(3);
  ConvNet net, other;
  const auto compiled = aot_module(net);
  const auto x = torch::randn({2, 3, 8, 8});
  net->eval();
  other->eval();
  const torch::NoGradGuard no_grad;
  compiled(x);
  std::stringstream bytes;
  torch::save(other, bytes);
  torch::load(net, bytes);
  expect_near(compiled(x), other->forward(x), 1e-6, "loaded");
  net->to(torch::kDouble);
  other->to(torch::kDouble);
  expect_near(compiled(x.to(torch::kDouble)), other->forward(x.to(torch::kDouble)), 1e-12, "double");
  EXPECT_EQ(compiled(x.to(torch::kDouble)).scalar_type(), torch::kDouble);
}

}  // namespace
}  // namespace hindcast::tests
