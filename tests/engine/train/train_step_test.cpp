// A step in one call, compared with the same step by LibTorch: in float64, where a different order of sums shows only in the last digits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hindcast/train_step.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;
using testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

TrainStepOptions now() {
  TrainStepOptions options;
  options.aot.async = false;
  return options;
}

template <class Module>
Module copy_of(const Module& module) {
  return Module(std::dynamic_pointer_cast<typename Module::ContainedType>(module->clone()));
}

Sequential mlp() {
  Sequential net(Linear(6, 16), torch::nn::Tanh(), Linear(16, 3));
  net->to(at::kDouble);
  return net;
}

at::Tensor loss_of(torch::nn::SequentialImpl& net, const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(net.forward(x), y); }

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Tensors)>;
template <class Optimizer, class Options>
MakeOptimizer of(Options options) {
  return [=](Tensors parameters) { return std::make_unique<Optimizer>(std::move(parameters), options); };
}

/// Two copies of one net: one per lane.
template <class Module>
struct TwoOf {
  TwoOf(const Module& net, const MakeOptimizer& make)
      : ours(copy_of(net)), stock(copy_of(net)), of_ours(make(ours->parameters())), of_stock(make(stock->parameters())) {}

  void expect_alike() {
    const auto mine = ours->named_parameters(), theirs = stock->named_parameters();
    for (const auto& parameter : theirs) {
      EXPECT_TRUE(at::allclose(mine[parameter.key()], parameter.value(), 1e-10, 1e-12)) << parameter.key();
      EXPECT_FALSE(mine[parameter.key()].grad().defined());
    }
    const auto of_mine = ours->named_buffers(), of_theirs = stock->named_buffers();
    for (const auto& buffer : of_theirs) EXPECT_TRUE(at::allclose(of_mine[buffer.key()], buffer.value(), 1e-10, 1e-12)) << buffer.key();
  }

  Module ours, stock;
  std::unique_ptr<torch::optim::Optimizer> of_ours, of_stock;
};

at::Tensor numbers(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

TEST(TrainStep, IsTheStepOfEachOptimizer) {
  torch::manual_seed(1);
  using namespace torch::optim;
  const std::vector<MakeOptimizer> all = {of<SGD>(SGDOptions(0.1).momentum(0.9)), of<Adam>(AdamOptions(0.01)),
                                          of<AdamW>(AdamWOptions(0.01)), of<RMSprop>(RMSpropOptions(0.01)),
                                          of<Adagrad>(AdagradOptions(0.1))};
  for (const MakeOptimizer& make : all) {
    for (const bool clips : {false, true}) {
      TwoOf<Sequential> two(mlp(), make);
      TrainStepOptions options = now();
      if (clips) options.clip = ClipGradNorm{0.5};
      auto step = train_step(*two.of_ours, two.ours, loss_of, options);
      for (int i = 0; i < 20; ++i) {
        const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
        two.of_stock->zero_grad();
        const at::Tensor expected = loss_of(*two.stock, x, y);
        expected.backward();
        if (clips) EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(two.stock->parameters(), 0.5), 0, 1e9);
        two.of_stock->step();
        const at::Tensor loss = step(x, y);
        EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-10);
        EXPECT_FALSE(loss.requires_grad());
        for (auto* const optimizer : {two.of_ours.get(), two.of_stock.get()}) {  // as a scheduler does
          for (auto& group : optimizer->param_groups()) group.options().set_lr(group.options().get_lr() * 0.9);
        }
      }
      two.expect_alike();
      EXPECT_EQ(step.stats().hits, 19U);
      EXPECT_EQ(step.stats().three_parts, 0U);
      EXPECT_EQ(step.stats().updates.original, 0U) << step.stats().updates.why_original;
      EXPECT_EQ(step.grad_norm() > 0, clips);
    }
  }
}

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall)
  void reset() override {
    first = Linear(6, 16);
    last = Linear(16, 3);
    norm = torch::nn::BatchNorm1d(16);
    register_module("first", first);
    register_module("norm", norm);
    register_module("last", last);
    unused = register_parameter("unused", torch::ones({3}));
  }
  at::Tensor forward(const at::Tensor& x) { return last(at::dropout(norm(first(x)).relu(), 0.5, is_training())); }
  Linear first = nullptr, last = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
  at::Tensor unused;
};
TORCH_MODULE(Net);

TEST(TrainStep, BuffersModesAndSizesAreTheModules) {
  torch::manual_seed(2);
  Net net;
  net->to(at::kDouble);
  TwoOf<Net> two(net, of<torch::optim::Adam>(torch::optim::AdamOptions(0.01)));
  const auto loss_function = [](NetImpl& model, const at::Tensor& x, const at::Tensor& y) {
    return torch::cross_entropy_loss(model.forward(x), y);
  };
  TrainStepOptions options = now();
  options.aot.fallback_random = true;  // eager's masks
  auto step = train_step(*two.of_ours, two.ours, loss_function, options);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(i);
    const bool trains = i % 8 < 5;
    for (Net model : {two.ours, two.stock}) model->train(trains);
    const int64_t batch = 4 + i % 3;
    const at::Tensor x = numbers({batch, 6}), y = at::randint(3, {batch}, at::kLong);
    torch::manual_seed(static_cast<uint64_t>(100 + i));
    two.of_stock->zero_grad();
    const at::Tensor expected = loss_function(*two.stock, x, y);
    expected.backward();
    two.of_stock->step();
    torch::manual_seed(static_cast<uint64_t>(100 + i));
    EXPECT_NEAR(step(x, y).item<double>(), expected.item<double>(), 1e-10);
  }
  two.expect_alike();
  EXPECT_GE(step.stats().hits, 12U);
  EXPECT_EQ(step.stats().eager, 0U);
}

// The loss and its gradients are one program without a backward of its own. Which layout is faster depends on the machine.
TEST(TrainStep, ConvolutionsMayWorkChannelsLast) {
  torch::manual_seed(4);
  using namespace torch::nn;
  const auto convolution = [](int64_t from, int64_t to) { return Conv2d(Conv2dOptions(from, to, 3).padding(1)); };
  const Sequential net(convolution(3, 32), ReLU(), convolution(32, 32), ReLU(), MaxPool2d(2), convolution(32, 32), ReLU(),
                       AdaptiveAvgPool2d(1), Flatten(), Linear(32, 5));
  TwoOf<Sequential> two(net, of<torch::optim::SGD>(torch::optim::SGDOptions(0.05)));
  const auto loss = [](SequentialImpl& module, const at::Tensor& x, const at::Tensor& y) {
    return at::cross_entropy_loss(module.forward(x), y);
  };
  TrainStepOptions options = now();
  options.aot.fw_compiler = options.aot.bw_compiler = compilers::fused();
  auto step = train_step(*two.of_ours, two.ours, loss, options);
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = torch::randn({8, 3, 16, 16}), y = torch::randint(5, {8}, at::kLong);
    two.of_stock->zero_grad();
    const at::Tensor expected = loss(*two.stock, x, y);
    expected.backward();
    two.of_stock->step();
    EXPECT_NEAR(step(x, y).item<double>(), expected.item<double>(), 1e-5);
  }
  const auto mine = two.ours->named_parameters();
  for (const auto& parameter : two.stock->named_parameters()) {
    EXPECT_TRUE(at::allclose(mine[parameter.key()], parameter.value(), 1e-4, 1e-5)) << parameter.key();
    EXPECT_EQ(mine[parameter.key()].strides(), parameter.value().strides());
  }
  EXPECT_EQ(step.stats().hits, 5U);
  EXPECT_EQ(step.stats().eager, 0U);
}

// The gradient of a gradient, as in physics-informed nets.
TEST(TrainStep, LossesMayHaveGradientsInThem) {
  torch::manual_seed(3);
  TwoOf<Sequential> two(mlp(), of<torch::optim::SGD>(torch::optim::SGDOptions(0.05)));
  const auto residual = [](torch::nn::SequentialImpl& net, const at::Tensor& points) {
    const at::Tensor x = points.detach().requires_grad_();
    const at::Tensor u = net.forward(x).sum();
    const at::Tensor slope = torch::autograd::grad({u}, {x}, {}, true, /*create_graph=*/true)[0];
    return (slope.sum(1) - x.sin().sum(1)).square().mean();
  };
  auto step = train_step(*two.of_ours, two.ours, residual, now());
  for (int i = 0; i < 10; ++i) {
    const at::Tensor x = numbers({9, 6});
    two.of_stock->zero_grad();
    residual(*two.stock, x).backward();
    two.of_stock->step();
    step(x);
  }
  two.expect_alike();
  EXPECT_EQ(step.stats().hits, 9U);
}

TEST(TrainStep, ReturnsWhatTheFunctionReturns) {
  Sequential net = mlp();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto step = train_step(
      optimizer,
      [&](const at::Tensor& x, double factor) {
        const at::Tensor y = net->forward(x);
        return std::pair(y.sum() * factor, std::vector<at::Tensor>{y, x});
      },
      now());
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = numbers({2, 6});
    const at::Tensor y = net->forward(x).detach();
    const auto [loss, rest] = step(x, 2.0);
    EXPECT_TRUE(at::allclose(loss, y.sum() * 2));
    EXPECT_TRUE(at::allclose(rest.at(0), y));
    EXPECT_TRUE(at::equal(rest.at(1), x));
  }
}

TEST(TrainStep, MicroBatchesAreAdded) {
  torch::manual_seed(4);
  TwoOf<Sequential> two(mlp(), of<torch::optim::Adam>(torch::optim::AdamOptions(0.01)));
  TrainStepOptions options = now();
  options.accumulate = 3;
  options.clip = ClipGradNorm{1.0};
  auto step = train_step(*two.of_ours, two.ours, loss_of, options);
  for (int i = 0; i < 12; ++i) {
    const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
    if (i % 3 == 0) two.of_stock->zero_grad();
    loss_of(*two.stock, x, y).backward();
    if (i % 3 == 2) {
      torch::nn::utils::clip_grad_norm_(two.stock->parameters(), 1.0);
      two.of_stock->step();
    }
    step(x, y);
    if (i % 3 == 2) {
      two.expect_alike();
    } else {
      for (size_t j = 0; j < two.ours->parameters().size(); ++j) {
        EXPECT_TRUE(at::allclose(two.ours->parameters()[j].grad(), two.stock->parameters()[j].grad(), 1e-10, 1e-12));
      }
    }
  }
  EXPECT_EQ(step.stats().hits, 11U);
}

TEST(TrainStep, GradientsMayBeKept) {
  Sequential net = mlp();
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  TrainStepOptions options = now();
  options.keep_gradients = true;
  auto step = train_step(optimizer, net, loss_of, options);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
    const Tensors expected = torch::autograd::grad({loss_of(*net, x, y)}, net->parameters());
    step(x, y);
    for (size_t j = 0; j < expected.size(); ++j) {
      const at::Tensor& grad = net->parameters()[j].grad();
      EXPECT_TRUE(at::allclose(grad, expected[j], 1e-10, 1e-12));
      EXPECT_EQ(grad.strides(), net->parameters()[j].strides());
    }
  }
}

TEST(TrainStep, WhoWatchesAParameterSeesWhatHeSeesInABackward) {
  torch::manual_seed(5);
  TwoOf<Sequential> two(mlp(), of<torch::optim::SGD>(torch::optim::SGDOptions(0.1)));
  auto step = train_step(*two.of_ours, two.ours, loss_of, now());
  const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
  const auto both = [&] {
    two.of_stock->zero_grad();
    loss_of(*two.stock, x, y).backward();
    two.of_stock->step();
    step(x, y);
  };
  both();
  both();
  EXPECT_EQ(step.stats().three_parts, 0U);
  int calls = 0;
  for (Sequential net : {two.ours, two.stock}) {
    net->parameters()[0].register_hook([&](const at::Tensor& gradient) {
      ++calls;
      return gradient * 2;
    });
  }
  both();
  both();
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(step.stats().three_parts, 2U);
  EXPECT_EQ(step.stats().why_three_parts, "a parameter has a hook");
  for (Sequential net : {two.ours, two.stock}) net->parameters()[0].remove_hook(0);
  both();
  two.expect_alike();
}

TEST(TrainStep, ParametersMayChange) {
  torch::manual_seed(6);
  TwoOf<Sequential> two(mlp(), of<torch::optim::SGD>(torch::optim::SGDOptions(0.1)));
  TrainStepOptions options = now();
  options.ignore_other_leaves = true;
  auto step = train_step(*two.of_ours, two.ours, loss_of, options);
  for (int i = 0; i < 12; ++i) {
    const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
    for (Sequential net : {two.ours, two.stock}) net->parameters()[0].requires_grad_(i % 4 != 1);
    two.of_stock->zero_grad();
    loss_of(*two.stock, x, y).backward();
    two.of_stock->step();
    step(x, y);
  }
  two.expect_alike();
  EXPECT_EQ(step.stats().traces, 2U);
}

// ---- found by attack

/// Losses of a net, of two parameters outside of it, and of a batch.
using LossBeside = std::function<at::Tensor(Sequential net, const Tensors& beside, const at::Tensor& x, const at::Tensor& y)>;

struct Attack {
  std::string name;
  LossBeside loss;
  std::function<Tensors(Sequential net, const Tensors& beside)> parameters = [](Sequential net, const Tensors& beside) {
    Tensors all = net->parameters();
    all.insert(all.end(), beside.begin(), beside.end());
    return all;
  };
  bool scales = false;  // the first argument by a parameter, outside of the step
};

const std::vector<Attack>& attacks() {
  static const auto mse = [](Sequential net, const Tensors&, const at::Tensor& x, const at::Tensor& y) {
    return torch::mse_loss(net->forward(x), y);
  };
  static const std::vector<Attack> all = {
      {.name = "SharedGradient",
       .loss = [](Sequential net, const Tensors& w, const at::Tensor& x,
                  const at::Tensor& y) { return torch::mse_loss(net->forward(x) + (w[0] + w[1]), y); }},
      {.name = "ListedTwice",
       .loss = mse,
       .parameters =
           [](Sequential net, const Tensors&) {
             Tensors twice = net->parameters();
             twice.push_back(twice[0]);
             return twice;
           }},
      {.name = "HistoryOfAnArgument", .loss = mse, .scales = true},
      {.name = "BackwardInTheFunction",
       .loss =
           [](Sequential net, const Tensors& w, const at::Tensor& x, const at::Tensor& y) {
             (w[0] * x.sum()).sum().backward();
             return torch::mse_loss(net->forward(x), y);
           }},
  };
  return all;
}

class AttackedTrainStep : public testing::TestWithParam<std::tuple<size_t, int>> {};

TEST_P(AttackedTrainStep, IsLibTorchs) {
  const Attack& attack = attacks()[std::get<0>(GetParam())];
  TrainStepOptions options = now();
  const int kind = std::get<1>(GetParam());
  if (kind == 1) options.accumulate = 2;
  if (kind == 2) options.keep_gradients = true;
  torch::manual_seed(8);
  Sequential ours = mlp(), stock = copy_of(ours);
  const auto beside = [] {
    return Tensors{at::linspace(0, 1, 3, at::kDouble).requires_grad_(), at::linspace(1, 2, 3, at::kDouble).requires_grad_()};
  };
  const Tensors of_ours = beside(), of_stock = beside();
  torch::optim::SGD mine(attack.parameters(ours, of_ours), 0.05), theirs(attack.parameters(stock, of_stock), 0.05);
  auto step = train_step(
      mine, [&](const at::Tensor& x, const at::Tensor& y) { return attack.loss(ours, of_ours, x, y); }, options);
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
    const auto scaled = [&](const Tensors& w) { return attack.scales ? x * w[0].sum() : x; };
    if (i % static_cast<int>(options.accumulate) == 0) theirs.zero_grad();
    attack.loss(stock, of_stock, scaled(of_stock), y).backward();
    if ((i + 1) % static_cast<int>(options.accumulate) == 0) theirs.step();
    step(scaled(of_ours), y);
    const Tensors mine_now = attack.parameters(ours, of_ours), theirs_now = attack.parameters(stock, of_stock);
    for (size_t j = 0; j < mine_now.size(); ++j) {
      EXPECT_TRUE(at::allclose(mine_now[j], theirs_now[j], 1e-10, 1e-12)) << i << " " << j;
      if (!options.keep_gradients) continue;
      ASSERT_EQ(mine_now[j].grad().defined(), theirs_now[j].grad().defined()) << i << " " << j;
      if (mine_now[j].grad().defined()) {
        EXPECT_TRUE(at::allclose(mine_now[j].grad(), theirs_now[j].grad(), 1e-10, 1e-12)) << i << " " << j;
      }
    }
  }
  if (options.keep_gradients && attack.name == "SharedGradient") {
    EXPECT_FALSE(of_ours[0].grad().is_alias_of(of_ours[1].grad()));
  }
}
std::string name_of(const testing::TestParamInfo<std::tuple<size_t, int>>& info) {
  static const char* const kinds[] = {"", "Accumulated", "Kept"};
  return attacks()[std::get<0>(info.param)].name + kinds[std::get<1>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Of, AttackedTrainStep, testing::Combine(testing::Range(size_t{0}, size_t{4}), testing::Range(0, 3)), name_of);

TEST(TrainStep, GradientsOfFrozenParametersAreZeroedToo) {
  TwoOf<Sequential> two(mlp(), of<torch::optim::SGD>(torch::optim::SGDOptions(0.1)));
  for (Sequential net : {two.ours, two.stock}) {
    at::Tensor frozen = net->parameters()[0];
    frozen.mutable_grad() = at::ones_like(frozen);
    frozen.requires_grad_(false);
  }
  auto step = train_step(*two.of_ours, two.ours, loss_of, now());
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
    two.of_stock->zero_grad();
    loss_of(*two.stock, x, y).backward();
    two.of_stock->step();
    step(x, y);
  }
  two.expect_alike();
}

TEST(TrainStep, IsComparedWithTheFunction) {
  TwoOf<Sequential> two(mlp(), of<torch::optim::SGD>(torch::optim::SGDOptions(0.1)));
  TrainStepOptions options = now();
  options.aot.check_every = 2;
  double factor = 1;
  auto step = train_step(
      *two.of_ours, two.ours,
      [&](torch::nn::SequentialImpl& net, const at::Tensor& x, const at::Tensor& y) { return loss_of(net, x, y) * factor; }, options);
  for (int i = 0; i < 4; ++i) step(numbers({8, 6}), numbers({8, 3}));
  factor = 2;
  EXPECT_THROW(for (int i = 0; i < 2; ++i) step(numbers({8, 6}), numbers({8, 3})), std::runtime_error);
}

TEST(TrainStep, LbfgsEvaluatesTheLossItself) {
  torch::manual_seed(7);
  TwoOf<Sequential> two(mlp(), of<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.1).max_iter(4)));
  auto step = train_step(*two.of_ours, two.ours, loss_of, now());
  const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
  for (int i = 0; i < 3; ++i) {
    const at::Tensor expected = two.of_stock->step([&] {
      two.of_stock->zero_grad();
      at::Tensor loss = loss_of(*two.stock, x, y);
      loss.backward();
      return loss;
    });
    EXPECT_NEAR(step(x, y).item<double>(), expected.item<double>(), 1e-10);
  }
  two.expect_alike();
}

// ---- what fails

/// Parameters, state and gradients, as bytes.
std::string everything(Sequential& net, const torch::optim::Optimizer& optimizer) {
  std::ostringstream text;
  torch::save(optimizer, text);
  for (const at::Tensor& parameter : net->parameters()) {
    text << parameter.detach() << parameter.grad().defined();
    if (parameter.grad().defined()) text << parameter.grad();
  }
  return text.str();
}

class FailingTrainStep : public testing::TestWithParam<bool> {  // whether a hook splits it into three parts
 protected:
  FailingTrainStep() {
    if (GetParam()) net_->parameters()[0].register_hook([](const at::Tensor& gradient) { return gradient; });
    loss_of(*net_, x_, y_).backward();
    optimizer_.step();
  }
  template <class Error, class LossFunction>
  void expect_unchanged(LossFunction function, const std::string& message) {
    auto step = train_step(optimizer_, function, now());
    for (int i = 0; i < 2; ++i) {
      const std::string before = everything(net_, optimizer_);
      try {
        step(x_, y_);
        ADD_FAILURE() << "no error: " << message;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(message));
      }
      EXPECT_EQ(everything(net_, optimizer_), before);
    }
  }

  Sequential net_ = mlp();
  torch::optim::Adam optimizer_{net_->parameters()};
  const at::Tensor x_ = numbers({8, 6}), y_ = numbers({8, 3});
};

TEST_P(FailingTrainStep, ALossThatIsNoScalar) {
  expect_unchanged<c10::Error>([&](const at::Tensor& x, const at::Tensor& y) { return net_->forward(x) - y; },
                               "grad can be implicitly created only for scalar outputs");
}
TEST_P(FailingTrainStep, ALossThatNeedsNoGradient) {
  expect_unchanged<c10::Error>([](const at::Tensor& x, const at::Tensor& y) { return x.sum() + y.sum(); },
                               "does not require grad and does not have a grad_fn");
}
TEST_P(FailingTrainStep, AnExceptionOfTheFunction) {
  expect_unchanged<std::out_of_range>(
      [&](const at::Tensor& x, const at::Tensor&) -> at::Tensor {
        (void)net_->forward(x);
        throw std::out_of_range("of the user's");
      },
      "of the user's");
}
TEST_P(FailingTrainStep, NoLoss) {
  expect_unchanged<std::invalid_argument>([](const at::Tensor&, const at::Tensor&) { return std::vector<at::Tensor>(); },
                                          "the function returned no loss");
}
TEST_P(FailingTrainStep, ALeafThatTheOptimizerDoesNotHave) {
  if (GetParam()) return;  // LibTorch's backward adds to its .grad(), as it always does
  const at::Tensor other = at::ones({3}, at::kDouble).requires_grad_();
  expect_unchanged<std::invalid_argument>(
      [&](const at::Tensor& x, const at::Tensor& y) { return ((net_->forward(x) - y) * other).square().mean(); },
      "that the optimizer does not have: a Double tensor of sizes [3]");
}
INSTANTIATE_TEST_SUITE_P(Of, FailingTrainStep, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "three_parts" : "one_program"); });

TEST(TrainStep, ANormThatIsNotFiniteThrowsBeforeTheUpdate) {
  Sequential net = mlp();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  TrainStepOptions options = now();
  options.clip = ClipGradNorm{1.0, 2.0, /*error_if_nonfinite=*/true};
  auto step = train_step(optimizer, net, loss_of, options);
  const at::Tensor x = numbers({8, 6}), y = numbers({8, 3});
  step(x, y);
  const at::Tensor before = net->parameters()[0].detach().clone();
  EXPECT_THROW(step(x * std::numeric_limits<double>::infinity(), y), c10::Error);
  EXPECT_TRUE(at::equal(net->parameters()[0], before));
  step(x, y);
  EXPECT_FALSE(at::equal(net->parameters()[0], before));
}

TEST(TrainStep, BadOptionsAreRefused) {
  Sequential net = mlp();
  torch::optim::SGD optimizer(net->parameters(), 0.1), empty(Tensors(), 0.1);
  torch::optim::LBFGS lbfgs(net->parameters());
  const auto message_of = [&](torch::optim::Optimizer& of, TrainStepOptions options) {
    try {
      train_step(of, net, loss_of, std::move(options));
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  TrainStepOptions none = now(), many = now();
  none.accumulate = 0;
  many.accumulate = 2;
  EXPECT_THAT(message_of(optimizer, none), HasSubstr("accumulate is 0, expected 1 or more"));
  EXPECT_THAT(message_of(lbfgs, many), HasSubstr("LBFGS evaluates the loss itself"));
  EXPECT_THAT(message_of(empty, now()), HasSubstr("the optimizer has no parameters"));
  for (const at::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  auto step = train_step(optimizer, net, loss_of, now());
  EXPECT_THROW(step(numbers({8, 6}), numbers({8, 3})), std::invalid_argument);
}

// The gradient of a product, returned as it was saved.
struct ProductAsSaved : torch::autograd::Function<ProductAsSaved> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& y) {
    ctx->save_for_backward({x, y});
    return (x * y).sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list&) {
    const auto saved = ctx->get_saved_variables();
    return {saved[1], saved[0]};
  }
};

TEST(TrainStep, CopiesGradientsThatAreOtherTensors) {
  for (const size_t accumulate : {1, 2}) {
    const auto leaf = [](double value) { return at::full({3}, value, at::kDouble).set_requires_grad(true); };
    const Tensors ours = {leaf(1), leaf(2)}, stock = {leaf(1), leaf(2)};
    const at::Tensor x = at::full({3}, 5.0, at::kDouble), before = x.clone();
    torch::optim::SGD of_ours(ours, 0.1), of_stock(stock, 0.1);
    const auto loss = [](const Tensors& leaves, const at::Tensor& input) {
      return ProductAsSaved::apply(leaves[0], leaves[1]) + ProductAsSaved::apply(leaves[0], input);
    };
    TrainStepOptions options = now();
    options.accumulate = accumulate;
    auto step = train_step(
        of_ours, [&](const at::Tensor& input) { return loss(ours, input); }, options);
    for (int i = 0; i < 4; ++i) {
      of_stock.zero_grad();
      for (size_t k = 0; k < accumulate; ++k) {
        step(x);
        loss(stock, x).backward();
      }
      of_stock.step();
      for (size_t p = 0; p < ours.size(); ++p) EXPECT_TRUE(at::allclose(ours[p], stock[p], 1e-12, 1e-12)) << "step " << i;
      EXPECT_TRUE(x.equal(before));
    }
  }
}

}  // namespace
}  // namespace hindcast::tests
