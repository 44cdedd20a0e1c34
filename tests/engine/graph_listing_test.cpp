// Graph::print(): the listing of a small model, word for word, and what every listing must contain.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <regex>
#include <sstream>

#include "hindcast/hindcast.h"
#include "tests/support/kept_graphs.h"
#include "tests/support/trimmed.h"

namespace hindcast::tests {
namespace {

using testing::HasSubstr;

class Listing : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  /// The listing of the graph captured last while `backward` runs.
  static std::string listing_of(const std::function<void()>& backward) {
    KeptGraphs kept;
    const auto guard = hindcast::enable(kept.compiler());
    backward();
    return kept.graphs.empty() ? "nothing was captured" : kept.graphs.back()->print();
  }
};

void backward_of_two_layers(int64_t batch) {
  const auto first = at::ones({8, 4}).set_requires_grad(true), first_bias = at::ones({8}).set_requires_grad(true);
  const auto second = at::ones({2, 8}).set_requires_grad(true), second_bias = at::ones({2}).set_requires_grad(true);
  const auto hidden = at::linear(at::ones({batch, 4}), first, first_bias).tanh();
  at::linear(hidden, second, second_bias).mean().mul(at::Scalar(1.0 / static_cast<double>(batch))).backward();
}

constexpr const char* kTwoLayers = R"(===== Compiled autograd graph =====
class CompiledAutograd1(torch.nn.Module):
    def forward(self, inputs, sizes, scalars, hooks):
        tangents_1: "f32[][]cpu" = inputs[0]
        saved_1: "f32[s1, 8][8, 1]cpu" = inputs[1]
        saved_2: "f32[8, 2][1, 8]cpu" = inputs[2]
        saved_3: "f32[s1, 8][8, 1]cpu" = inputs[3]
        saved_4: "f32[s1, 4][4, 1]cpu" = inputs[4]
        s0 = sizes[0]
        s1 = sizes[1]
        f0 = scalars[0]

         # MulBackward1 (NodeCall 1)
        mul: "f32[][]cpu" = torch.ops.aten.mul.Scalar(tangents_1, f0)

         # MeanBackward0 (NodeCall 2)
        expand: "f32[s1, 2][0, 0]cpu" = torch.ops.aten.expand.default(mul, [s1, 2], False)
        div: "f32[s1, 2][2, 1]cpu" = torch.ops.aten.div.Scalar(expand, s0)

         # AddmmBackward0 (NodeCall 3)
        t: "f32[2, 8][8, 1]cpu" = torch.ops.aten.t.default(saved_2)
        mm: "f32[s1, 8][8, 1]cpu" = torch.ops.aten.mm.default(div, t)
        t_1: "f32[2, s1][1, 2]cpu" = torch.ops.aten.t.default(div)
        mm_1: "f32[2, 8][8, 1]cpu" = torch.ops.aten.mm.default(t_1, saved_1)
        t_2: "f32[8, 2][1, 8]cpu" = torch.ops.aten.t.default(mm_1)
        sum: "f32[1, 2][2, 1]cpu" = torch.ops.aten.sum.dim_IntList(div, [0], True, None)
        view: "f32[2][1]cpu" = torch.ops.aten.view.default(sum, [2])

         # torch::autograd::AccumulateGrad (NodeCall 4)
        accumulate_grad_ = accumulate_grad_(view)

         # TBackward0 (NodeCall 5)
        t_3: "f32[2, 8][8, 1]cpu" = torch.ops.aten.t.default(t_2)

         # torch::autograd::AccumulateGrad (NodeCall 6)
        accumulate_grad_ = accumulate_grad_(t_3)

         # TanhBackward0 (NodeCall 7)
        tanh_backward: "f32[s1, 8][8, 1]cpu" = torch.ops.aten.tanh_backward.default(mm, saved_3)

         # AddmmBackward0 (NodeCall 8)
        t_4: "f32[8, s1][1, 8]cpu" = torch.ops.aten.t.default(tanh_backward)
        mm_2: "f32[8, 4][4, 1]cpu" = torch.ops.aten.mm.default(t_4, saved_4)
        t_5: "f32[4, 8][1, 4]cpu" = torch.ops.aten.t.default(mm_2)
        sum_1: "f32[1, 8][8, 1]cpu" = torch.ops.aten.sum.dim_IntList(tanh_backward, [0], True, None)
        view_1: "f32[8][1]cpu" = torch.ops.aten.view.default(sum_1, [8])

         # torch::autograd::AccumulateGrad (NodeCall 9)
        accumulate_grad_ = accumulate_grad_(view_1)

         # TBackward0 (NodeCall 10)
        t_6: "f32[8, 4][4, 1]cpu" = torch.ops.aten.t.default(t_5)

         # torch::autograd::AccumulateGrad (NodeCall 11)
        accumulate_grad_ = accumulate_grad_(t_6)

        _exec_final_callbacks_stub = exec_final_callbacks_stub()
        return []
    # guards: s1 != 1
)";

// The second capture: the batch (s1), what mean() divides by (s0) and the factor of the loss (f0) are dynamic.
TEST_F(Listing, OfTwoLayers) {
  const std::string listing = listing_of([] {
    backward_of_two_layers(3);
    backward_of_two_layers(5);
  });
  EXPECT_EQ(trimmed(listing), kTwoLayers);
}

/// Lines that define a value give its dtype, sizes, strides and device; all others have a few known forms.
void expect_typed_values(const std::string& listing) {
  const std::string type = R"re((\w+: "(\w+\[[^\]]*\]\[[^\]]*\]\w+|None)"))re";
  const std::regex value("        " + type + "(, " + type + ")* = .*");
  const std::regex other(
      R"(===== Compiled autograd graph =====|class CompiledAutograd\d+\(torch\.nn\.Module\):|)"
      R"(    def forward\(self, inputs, sizes, scalars, hooks\):|        s\d+ = sizes\[\d+\]|        f\d+ = scalars\[\d+\]|)"
      R"(         # .+ \(NodeCall \d+\)|        accumulate_grad_ = accumulate_grad_\(\w+\)|)"
      R"(        _exec_final_callbacks_stub = exec_final_callbacks_stub\(\)|        return \[.*\]|    # guards: .*|\s*)");
  std::istringstream lines(listing);
  size_t values = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool typed = std::regex_match(line, value);
    values += typed;
    EXPECT_TRUE(typed || std::regex_match(line, other)) << line << "\nin\n" << listing;
  }
  EXPECT_GT(values, 1U) << listing;
}

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0] * 2};
  }
};

TEST_F(Listing, GivesEveryValueItsType) {
  expect_typed_values(listing_of([] { backward_of_two_layers(3); }));
  expect_typed_values(listing_of([] {  // several results, lists of tensors, complex numbers, channels last
    const auto x = at::ones({2, 3, 4, 4}, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
    const auto w = at::ones({3, 3, 3, 3}, at::kDouble).set_requires_grad(true);
    const auto y = at::conv2d(x, w);
    at::real(at::cat({at::complex(y, y), at::complex(y, -y)}).conj() * 2).sum().backward();
  }));
  expect_typed_values(listing_of([] {  // hooks, opaque nodes, writes in place, integers
    const auto x = at::ones({4, 3}).set_requires_grad(true);
    auto y = x.sin();
    y.register_hook([](const at::Tensor&) {});
    y = Doubled::apply(y).index_select(0, at::arange(3));
    y.select(0, 0).zero_();
    y.sum().backward();
  }));
}

TEST_F(Listing, HasTheNodeAndItsNodeCallAboveItsInstrs) {
  const std::string listing = listing_of([] { at::ones({3}).set_requires_grad(true).sin().sum().backward(); });
  const size_t sum = listing.find("# SumBackward0 (NodeCall 1)"), sin = listing.find("# SinBackward0 (NodeCall 2)"),
               accumulate = listing.find("# torch::autograd::AccumulateGrad (NodeCall 3)");
  EXPECT_LT(sum, listing.find("aten.expand.default"));
  EXPECT_LT(listing.find("aten.expand.default"), sin);
  EXPECT_LT(sin, listing.find("aten.cos.default"));
  EXPECT_LT(listing.find("aten.cos.default"), accumulate);
  EXPECT_LT(accumulate, listing.find("accumulate_grad_ = "));
}

TEST_F(Listing, ShowsHooksAndOpaqueNodesInTheirPlaces) {
  const std::string listing = listing_of([] {
    const auto x = at::ones({3}).set_requires_grad(true);
    x.register_hook([](const at::Tensor&) {});
    Doubled::apply(x).sum().backward();
  });
  EXPECT_THAT(listing, HasSubstr("= call_node("));
  EXPECT_THAT(listing, HasSubstr("hook_type = 'tensor_pre_hook')"));
  EXPECT_LT(listing.find("call_node("), listing.find("call_hook(hooks["));
  EXPECT_LT(listing.find("call_hook(hooks["), listing.find("accumulate_grad_ = "));
}

TEST_F(Listing, ReturnsTheGradientsThatGradAskedFor) {
  const std::string listing = listing_of([] {
    const auto x = at::ones({3}).set_requires_grad(true);
    torch::autograd::grad({x.sin().sum()}, {x});
  });
  EXPECT_THAT(listing, HasSubstr("return [mul]"));
  EXPECT_THAT(listing, testing::Not(HasSubstr("accumulate_grad_ =")));
}

}  // namespace
}  // namespace hindcast::tests
