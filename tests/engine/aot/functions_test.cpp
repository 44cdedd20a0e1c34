// Compiled functions of all kinds, compared with the functions themselves.

#include "tests/engine/aot/aot_grads.h"

#include <array>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hindcast::tests {
namespace {

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }

std::vector<AotCase> cases() {
  std::vector<AotCase> all;
  all.push_back({"seed",
                 [] {
                   return Tensors{leaf({8, 5}), leaf({8, 5}), leaf({8, 5}), leaf({8, 5})};
                 },
                 [](Tensors x) { return Tensors{(x[0] + x[1] + x[2] + x[3]).cos().cos()}; }});
  all.push_back({"mlp",
                 [] {
                   return Tensors{torch::randn({6, 7}), leaf({9, 7}), leaf({9}), leaf({3, 9}), leaf({3})};
                 },
                 [](Tensors x) {
                   const auto h = at::gelu(at::layer_norm(at::linear(x[0], x[1], x[2]), {9}));
                   return Tensors{at::linear(h, x[3], x[4]).softmax(-1)};
                 }});
  all.push_back({"several",
                 [] {
                   return Tensors{leaf({4, 3}), torch::randint(0, 9, {4, 3})};
                 },
                 [](Tensors x) {
                   return Tensors{x[0].exp(), x[1] + 1, at::Tensor(), x[0].detach() * 2, x[0] * x[1]};
                 }});
  all.push_back({"views of inputs",
                 [] {
                   return Tensors{leaf({4, 6})};
                 },
                 [](Tensors x) {
                   return Tensors{x[0].t(), x[0], x[0].view({24}), x[0].slice(0, 1, 3), x[0].detach()};
                 }});
  all.push_back({"shared results",
                 [] {
                   return Tensors{leaf({4, 6})};
                 },
                 [](Tensors x) {
                   const auto y = x[0].exp();
                   return Tensors{y, y.t(), y, y.view({-1}).slice(0, 2, 9)};
                 }});
  all.push_back({"chunks",
                 [] {
                   return Tensors{leaf({4, 6})};
                 },
                 [](Tensors x) {
                   auto parts = (x[0] * 2).chunk(3, 1);
                   return Tensors{parts[0].sigmoid() * parts[1], parts[2]};
                 }});
  all.push_back({"in place",
                 [] {
                   return Tensors{leaf({4, 6})};
                 },
                 [](Tensors x) {
                   auto y = x[0] * 3;
                   y.abs_();
                   y.select(0, 1).mul_(2);
                   y.slice(1, 0, 3).copy_(x[0].slice(1, 3, 6));
                   return Tensors{y.sin()};
                 }});
  all.push_back({"written input",
                 [] {
                   return Tensors{torch::randn({4, 6}), leaf({4, 6})};
                 },
                 [](Tensors x) {
                   x[0].add_(1).mul_(x[1].detach().select(0, 0));
                   return Tensors{x[0] * x[1], x[0]};
                 }});
  all.push_back({"written input that needs a gradient",
                 [] {
                   return Tensors{leaf({4, 6}), leaf({4, 6})};
                 },
                 [](Tensors x) {
                   x[0].mul_(x[1]);
                   x[0].select(1, 2).exp_();
                   return Tensors{x[0].sigmoid(), x[0].t()};
                 }});
  all.push_back({"written with a gradient",
                 [] {
                   return Tensors{torch::zeros({4, 6}), leaf({4, 6})};
                 },
                 [](Tensors x) {
                   x[0].add_(x[1] * x[1]);
                   return Tensors{x[0].tanh()};
                 }});
  all.push_back({"dropout",
                 [] {
                   return Tensors{leaf({16, 6})};
                 },
                 [](Tensors x) {
                   return Tensors{at::dropout(x[0], 0.3, true) + torch::rand({16, 6})};
                 },
                 false, true});
  all.push_back({"no_grad inside",
                 [] {
                   return Tensors{leaf({4, 6}), leaf({4, 6})};
                 },
                 [](Tensors x) {
                   at::Tensor scale;
                   {
                     const torch::NoGradGuard no_grad;
                     scale = x[0].abs().mean();
                   }
                   return Tensors{x[0] * x[1] / scale, scale};
                 }});
  all.push_back({"rnn",
                 [] {
                   return Tensors{torch::randn({5, 3, 4}), leaf({7, 4}), leaf({7, 7}), leaf({7})};
                 },
                 [](Tensors x) {
                   auto h = torch::zeros({3, 7}, x[0].options());
                   for (int64_t t = 0; t < x[0].size(0); ++t) h = (at::linear(x[0][t], x[1], x[3]) + at::linear(h, x[2])).tanh();
                   return Tensors{h};
                 }});
  all.push_back({"attention",
                 [] {
                   return Tensors{leaf({2, 5, 8}), leaf({24, 8}), leaf({8, 8})};
                 },
                 [](Tensors x) {
                   const auto qkv = at::linear(x[0], x[1]).view({2, 5, 3, 2, 4}).permute({2, 0, 3, 1, 4});
                   const auto weights = (qkv[0].matmul(qkv[1].transpose(-2, -1)) / 2.).softmax(-1);
                   return Tensors{at::linear(weights.matmul(qkv[2]).transpose(1, 2).reshape({2, 5, 8}), x[2]) + x[0]};
                 }});
  all.push_back({"conv",
                 [] {
                   return Tensors{torch::randn({2, 3, 8, 8}), leaf({4, 3, 3, 3}), leaf({4}), leaf({5, 36})};
                 },
                 [](Tensors x) {
                   const auto h = at::max_pool2d(at::relu(at::conv2d(x[0], x[1], x[2])), 2);
                   return Tensors{at::cross_entropy_loss(at::linear(h.flatten(1), x[3]), torch::tensor({1, 3}))};
                 }});
  all.push_back({"index",
                 [] {
                   return Tensors{leaf({9, 4}), torch::randint(0, 9, {5})};
                 },
                 [](Tensors x) {
                   return Tensors{at::embedding(x[0], x[1]).sum(0), x[0].index({x[1]}).cumsum(0)};
                 }});
  all.push_back({"mask",
                 [] {
                   return Tensors{leaf({9, 4})};
                 },
                 [](Tensors x) {
                   return Tensors{x[0].masked_select(x[0] > 0), x[0].index({x[0] < 0}) * 2};
                 }});
  all.push_back({"number", [] { return Tensors{leaf({9, 4})}; }, [](Tensors x) { return Tensors{x[0] * x[0].abs().max().item<float>()}; }});
  all.push_back({"branch",
                 [] {
                   return Tensors{leaf({9, 4})};
                 },
                 [](Tensors x) { return Tensors{x[0].sum().item<float>() > 0 ? x[0].exp() : x[0].sin()}; }});
  all.push_back({"data_ptr",
                 [] {
                   return Tensors{leaf({9, 4})};
                 },
                 [](Tensors x) { return Tensors{x[0] * static_cast<double>(x[0].detach().contiguous().data_ptr<float>()[3])}; }, true,
                 true});
  all.push_back({"complex",
                 [] {
                   return Tensors{torch::randn({4, 3}, torch::kComplexFloat).requires_grad_()};
                 },
                 [](Tensors x) {
                   return Tensors{(x[0] * x[0].conj()).abs().log1p(), x[0].mul(2)};
                 }});
  all.push_back({"empty", [] { return Tensors{leaf({0, 4}), leaf({4})}; }, [](Tensors x) { return Tensors{(x[0] + x[1]).exp()}; }});
  all.push_back({"nothing", [] { return Tensors{}; }, [](Tensors) { return Tensors{}; }});
  all.push_back({"constant", [] { return Tensors{leaf({3})}; }, [](Tensors) { return Tensors{torch::ones({3}), torch::arange(4)}; }});
  all.push_back({"half",
                 [] {
                   return Tensors{torch::randn({4, 8}).to(torch::kBFloat16).requires_grad_()};
                 },
                 [](Tensors x) { return Tensors{(x[0] * 2).sigmoid() * x[0]}; }});
  return all;
}

class Functions : public testing::TestWithParam<AotCase> {};

TEST_P(Functions, AreLikeEager) { expect_like_eager(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Aot, Functions, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
});

// Values of different types whose bytes are the same.
struct Overloaded {
  at::Tensor operator()(const at::Tensor& x, int64_t k) const { return x * k; }
  at::Tensor operator()(const at::Tensor& x, double k) const { return x + k + 1; }
  at::Tensor operator()(const at::Tensor& a, const at::Tensor& b) const { return a - b; }
  at::Tensor operator()(const std::pair<at::Tensor, at::Tensor>& both) const { return both.first + both.second; }
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& list) const { return {list[0] * 2}; }
  at::Tensor operator()(const std::array<at::Tensor, 2>& list) const { return list[0] * list[1]; }
};

TEST(AotFunction, EachTypeOfArgumentsHasItsProgram) {
  const auto f = aot_function(Overloaded());
  const at::Tensor x = torch::ones({2}), y = torch::full({2}, 3.0);
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(f(x, int64_t{0}).equal(x * 0));
    EXPECT_TRUE(f(x, 0.0).equal(x + 1));
    EXPECT_TRUE(f(x, y).equal(x - y));
    EXPECT_TRUE(f(std::pair(x, y)).equal(x + y));
    EXPECT_TRUE(f(std::vector<at::Tensor>{x, y}).at(0).equal(x * 2));
    EXPECT_TRUE(f(std::array<at::Tensor, 2>{x, y}).equal(x * y));
  }
  EXPECT_EQ(f.stats().traces, 6U);
}

struct State {
  at::Tensor hidden;
  int64_t steps = 0;
};
template <class S>
auto hindcast_members(S& state, State*) {
  return std::tie(state.hidden, state.steps);
}
struct StateAndMore : State {
  at::Tensor more;
};
static_assert(tree::HasMembers<State>::value);
static_assert(!tree::HasMembers<StateAndMore>::value, "`more` would be invisible");

TEST(AotFunction, AnArgumentThatIsAssignedIsAnError) {
  const auto of_tensor = aot_function([](at::Tensor& x) { return x = x * 2; });
  const auto of_number = aot_function([](State& state) { return state.hidden * static_cast<double>(++state.steps); });
  const auto in_place = aot_function([](State& state) { return state.hidden.add_(1) * 2; });
  EXPECT_THROW(of_tensor(torch::ones({2})), std::invalid_argument);
  EXPECT_THROW(of_number(State{torch::ones({2})}), std::invalid_argument);
  const State state{torch::zeros({2})};
  for (int call = 1; call < 4; ++call) EXPECT_TRUE(in_place(state).equal(torch::full({2}, 2.0 * call)));
}

void normalize_(at::Tensor x) { x.div_(x.norm()); }
const at::Tensor& first_of(const at::Tensor& a, const at::Tensor&) { return a; }
at::Tensor& twice_(at::Tensor& x) { return x.mul_(2); }
at::Tensor reduced(const at::Tensor& x, const std::string& how) { return how == "mean" ? x.mean() : x.sum(); }
at::Tensor chosen(const at::Tensor& x, const std::vector<bool>& takes_sine) { return takes_sine[0] ? x.sin() : x.cos(); }

TEST(AotFunction, TakesFunctionsAsTheyAreWritten) {
  const auto normalize = aot_function(normalize_);
  const auto first = aot_function(first_of);
  const auto twice = aot_function(twice_);
  const auto reduce = aot_function(reduced);
  const auto choose = aot_function(chosen);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::randn({3}), y = x.clone(), z = x.clone();
    normalize(y);
    EXPECT_TRUE(at::allclose(y, x / x.norm()));
    EXPECT_TRUE(first(x, y).equal(x));
    EXPECT_TRUE(twice(z).equal(x * 2));
    EXPECT_TRUE(z.equal(x * 2));
    EXPECT_TRUE(at::allclose(reduce(x, "mean"), x.mean()));
    EXPECT_TRUE(at::allclose(reduce(x, std::string("sum")), x.sum()));
    EXPECT_TRUE(at::allclose(choose(x, std::vector<bool>{true}), x.sin()));
    EXPECT_TRUE(at::allclose(choose(x, std::vector<bool>{false}), x.cos()));
  }
}

TEST(AotFunction, PrintsTheSeedsPrograms) {
  const auto f = aot_function([](at::Tensor a, at::Tensor b, at::Tensor c, at::Tensor d) { return (a + b + c + d).cos().cos(); });
  const auto a = leaf({2, 4}), b = leaf({2, 4}), c = leaf({2, 4}), d = leaf({2, 4});
  for (int call = 0; call < 2; ++call) f(a, b, c, d).sum().backward();
  EXPECT_EQ(f.stats().hits, 1U);
  EXPECT_EQ(f.stats().backwards, 1U);
  std::ostringstream text;
  print_graph(f, text);
  for (const char* line : {"return [cos_1, add_2, cos]", "return [mul_1, mul_1, mul_1, mul_1]", "tangents_1: "})
    EXPECT_NE(text.str().find(line), std::string::npos) << line << "\n" << text.str();
}

}  // namespace
}  // namespace hindcast::tests
