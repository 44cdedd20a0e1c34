#include "tests/capture/collector_oracle.h"
#include "tests/capture/sample_nodes.h"

#include "capture/backward/libtorch_access.h"
#include "capture/recorder/libtorch_compat.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <set>
#include <unordered_set>

namespace hindcast::tests {
namespace {

using torch::autograd::Node;

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return torch::rand(sizes, torch::TensorOptions(dtype).requires_grad(true));
}

using Tensors = std::vector<at::Tensor>;

struct Forward {
  const char* name;
  std::function<Tensors()> run;
};

// Together: every kind of member, undefined tensors, saved outputs, in-place and view nodes, every Scalar type.
std::vector<Forward> forwards() {
  const auto index = [](at::IntArrayRef sizes, int64_t end) { return torch::randint(end, sizes, at::kLong); };
  return {
      {"mul",
       [] {
         return Tensors{leaf({2, 3}) * leaf({3})};
       }},
      {"mul by a number",
       [] {
         return Tensors{leaf({2, 3}) * 0.5};
       }},
      {"square as a product",
       [] {
         auto x = leaf({2, 3});
         return Tensors{x * x};
       }},
      {"mul of a constant",
       [] {
         return Tensors{leaf({2, 3}) * torch::ones({2, 3})};
       }},
      {"add with alpha", [] { return Tensors{torch::add(leaf({4}), leaf({4}, at::kDouble), 0.25)}; }},
      {"sub with an integer alpha", [] { return Tensors{torch::sub(leaf({4}), leaf({4}), 2)}; }},
      {"div, with rounding",
       [] {
         return Tensors{leaf({4}) / leaf({4}), torch::div(leaf({4}), leaf({4}), "floor")};
       }},
      {"pow",
       [] {
         return Tensors{leaf({4}).pow(3), leaf({4}).pow(2.5), leaf({4}).pow(leaf({4})), torch::pow(2.0, leaf({4}))};
       }},
      {"pow, complex exponent", [] { return Tensors{leaf({4}, at::kComplexDouble).pow(c10::complex<double>(1.5, 0.5))}; }},
      {"where", [] { return Tensors{torch::where(torch::rand({3}) > 0.5, leaf({3}), leaf({3}))}; }},
      {"clamp",
       [] {
         return Tensors{leaf({4}).clamp(0.1, 0.9), leaf({4}).clamp_min(0.5), torch::clamp(leaf({4}), {}, 0.5)};
       }},
      {"cat",
       [] {
         return Tensors{torch::cat({leaf({2, 3}), leaf({5, 3}), leaf({1, 3}, at::kDouble)}, 0)};
       }},
      {"stack",
       [] {
         return Tensors{torch::stack({leaf({2}), leaf({2})}, 1)};
       }},
      {"split",
       [] {
         return leaf({7, 2}).split(3, 0);
       }},
      {"split with sizes",
       [] {
         return leaf({7, 2}).split_with_sizes({3, 4}, 0);
       }},
      {"unbind",
       [] {
         return leaf({3, 2}).unbind(0);
       }},
      {"chunk",
       [] {
         return leaf({6, 2}).chunk(3, 0);
       }},
      {"index",
       [index] {
         return Tensors{leaf({5, 4}).index({index({3}, 5)}), leaf({5, 4}).index({at::indexing::Slice(), index({3}, 4)})};
       }},
      {"index_put",
       [index] {
         return Tensors{leaf({5, 4}).index_put({index({3}, 5)}, leaf({3, 4}), true)};
       }},
      {"index_select, index_add",
       [index] {
         return Tensors{leaf({5, 4}).index_select(1, index({2}, 4)), leaf({5, 4}).index_add(0, index({2}, 5), leaf({2, 4}), 0.5)};
       }},
      {"gather, scatter",
       [index] {
         return Tensors{leaf({5, 4}).gather(1, index({5, 2}, 4)), leaf({5, 4}).scatter_add(0, index({2, 4}, 5), leaf({2, 4}))};
       }},
      {"masked",
       [] {
         return Tensors{leaf({4}).masked_fill(torch::rand({4}) > 0.5, 2.0), leaf({4}).masked_select(torch::rand({4}) > 0.1)};
       }},
      {"embedding",
       [index] {
         return Tensors{torch::embedding(leaf({10, 4}), index({2, 3}, 10), 2, true)};
       }},
      {"embedding_bag",
       [index] {
         return Tensors{std::get<0>(torch::embedding_bag(leaf({10, 4}), index({6}, 10), torch::tensor({0, 2}), false, 1))};
       }},
      {"sum, mean",
       [] {
         return Tensors{leaf({2, 3}).sum(), leaf({2, 3}).sum({0}, true), leaf({2, 3}).mean(), leaf({2, 3}).mean({1})};
       }},
      {"prod, var, std",
       [] {
         return Tensors{leaf({2, 3}).prod(), leaf({2, 3}).prod(1), leaf({2, 3}).var({1}, 1, true), leaf({2, 3}).std()};
       }},
      {"norm",
       [] {
         return Tensors{leaf({2, 3}).norm(), leaf({2, 3}).norm(1.5, {1}, true), torch::linalg_vector_norm(leaf({2, 3}), 3)};
       }},
      {"max, min, sort",
       [] {
         return Tensors{leaf({4}).max(), std::get<0>(leaf({2, 3}).max(1)), std::get<0>(leaf({4}).sort()), std::get<0>(leaf({5}).topk(2)),
                        leaf({2, 3}).amax({1})};
       }},
      {"logsumexp, cumsum, cumprod",
       [] {
         return Tensors{leaf({2, 3}).logsumexp({1}), leaf({4}).cumsum(0), leaf({4}).cumprod(0), leaf({4}).logcumsumexp(0)};
       }},
      {"expand, repeat",
       [] {
         return Tensors{leaf({2, 1}).expand({2, 5}), leaf({2, 3}).repeat({2, 2}), leaf({3}).repeat_interleave(2)};
       }},
      {"view, reshape",
       [] {
         return Tensors{leaf({2, 6}).view({3, 4}), leaf({2, 6}).t().reshape({4, 3}), leaf({2, 3, 4}).permute({2, 0, 1})};
       }},
      {"transpose, squeeze",
       [] {
         return Tensors{leaf({2, 3}).transpose(0, 1), leaf({2, 1, 3}).squeeze(1), leaf({1, 3}).squeeze(), leaf({3}).unsqueeze(0)};
       }},
      {"slice, select, diagonal",
       [] {
         return Tensors{leaf({9, 2}).slice(0, 1, 8, 3), leaf({9, 2}).select(0, 4), leaf({4, 5}).diagonal(1), leaf({9}).narrow(0, 2, 3)};
       }},
      {"as_strided",
       [] {
         return Tensors{leaf({20}).as_strided({3, 4}, {5, 1}, 2), (leaf({20}) * 2).as_strided({3, 4}, {4, 1})};
       }},
      {"unfold, flip, roll",
       [] {
         return Tensors{leaf({9}).unfold(0, 3, 2), leaf({3, 4}).flip({0, 1}), leaf({3, 4}).roll({1, 2}, {0, 1})};
       }},
      {"in place on a view",
       [] {
         auto x = leaf({4, 3}) * 1;
         x.select(0, 1).mul_(2.0);
         return Tensors{x};
       }},
      {"copy, fill, zero",
       [] {
         auto x = leaf({4, 3}) * 1;
         x.copy_(leaf({3}, at::kDouble));
         auto y = leaf({3}) * 1;
         y.fill_(leaf({}));
         return Tensors{x, y};
       }},
      {"mm, bmm, addmm",
       [] {
         return Tensors{leaf({2, 3}).mm(leaf({3, 4})), leaf({2, 3, 4}).bmm(leaf({2, 4, 5})),
                        torch::addmm(leaf({5}), leaf({2, 3}), leaf({3, 5}), 0.5, 2)};
       }},
      {"mv, dot, baddbmm",
       [] {
         return Tensors{leaf({2, 3}).mv(leaf({3})), leaf({3}).dot(leaf({3})),
                        torch::baddbmm(leaf({2, 3, 5}), leaf({2, 3, 4}), leaf({2, 4, 5}))};
       }},
      {"linear",
       [] {
         return Tensors{torch::linear(leaf({2, 3}), leaf({4, 3}), leaf({4})), torch::linear(leaf({2, 2, 3}), leaf({4, 3}))};
       }},
      {"conv2d",
       [] {
         return Tensors{torch::conv2d(leaf({2, 3, 8, 8}), leaf({4, 3, 3, 3}), leaf({4}), 1, 1)};
       }},
      {"conv2d without bias",
       [] {
         return Tensors{torch::conv2d(leaf({2, 3, 8, 8}), leaf({4, 3, 3, 3}), {}, 2)};
       }},
      {"conv_transpose1d",
       [] {
         return Tensors{torch::conv_transpose1d(leaf({2, 3, 8}), leaf({3, 4, 3}), leaf({4}))};
       }},
      {"max_pool2d, avg_pool2d",
       [] {
         return Tensors{torch::max_pool2d(leaf({2, 3, 8, 8}), 2),
                        torch::avg_pool2d(leaf({2, 3, 8, 8}), {3, 3}, {2, 2}, {1, 1}, false, true, 5)};
       }},
      {"adaptive pooling",
       [] {
         return Tensors{torch::adaptive_avg_pool2d(leaf({2, 3, 8, 8}), {3, 3}),
                        std::get<0>(torch::adaptive_max_pool2d(leaf({2, 3, 8, 8}), {3, 3}))};
       }},
      {"upsample",
       [] {
         return Tensors{torch::upsample_nearest2d(leaf({1, 2, 4, 4}), {8, 8}),
                        torch::upsample_bilinear2d(leaf({1, 2, 4, 4}), {8, 8}, true, 2.0, 2.0)};
       }},
      {"pad",
       [] {
         return Tensors{torch::constant_pad_nd(leaf({2, 3}), {1, 2}, 0.5), torch::reflection_pad1d(leaf({2, 5}), {1, 2})};
       }},
      {"layer_norm, group_norm",
       [] {
         return Tensors{torch::layer_norm(leaf({2, 3, 4}), {4}, leaf({4}), leaf({4})), torch::layer_norm(leaf({2, 4}), {4}),
                        torch::group_norm(leaf({2, 4, 3}), 2, leaf({4}), leaf({4}))};
       }},
      {"batch_norm",
       [] {
         return Tensors{torch::batch_norm(leaf({4, 3}), leaf({3}), leaf({3}), torch::zeros({3}), torch::ones({3}), true, 0.1, 1e-5, false),
                        std::get<0>(torch::native_batch_norm(leaf({4, 3}), {}, {}, {}, {}, true, 0.1, 1e-5))};
       }},
      {"softmax",
       [] {
         return Tensors{leaf({2, 3}).softmax(1), leaf({2, 3}).log_softmax(1, at::kDouble)};
       }},
      {"losses",
       [index] {
         return Tensors{
             torch::nll_loss(leaf({4, 3}), index({4}, 3)), torch::cross_entropy_loss(leaf({4, 3}), index({4}, 3), {}, 1, -100, 0.1),
             torch::mse_loss(leaf({4}), leaf({4})),        torch::huber_loss(leaf({4}), leaf({4}), 1, 0.75),
             torch::smooth_l1_loss(leaf({4}), leaf({4})),  torch::binary_cross_entropy_with_logits(leaf({4}), torch::rand({4})),
             torch::kl_div(leaf({4}), torch::rand({4}))};
       }},
      {"activations",
       [] {
         auto x = leaf({8});
         return Tensors{x.relu(),
                        x.sigmoid(),
                        x.tanh(),
                        torch::gelu(x, "tanh"),
                        torch::silu(x),
                        torch::elu(x, 0.75),
                        torch::leaky_relu(x, 0.125),
                        torch::softplus(x, 2),
                        torch::hardtanh(x, -0.5, 0.5),
                        torch::threshold(x, 0.25, 1),
                        torch::glu(x),
                        torch::prelu(x, leaf({1}))};
       }},
      {"pointwise",
       [] {
         auto x = leaf({8});
         return Tensors{x.exp(),
                        x.log(),
                        x.sqrt(),
                        x.rsqrt(),
                        x.sin(),
                        x.cos(),
                        x.abs(),
                        x.neg(),
                        x.reciprocal(),
                        x.erf(),
                        torch::atan2(x, leaf({8})),
                        torch::lerp(x, leaf({8}), 0.25),
                        torch::addcmul(x, leaf({8}), leaf({8}), 0.5),
                        torch::addcdiv(x, leaf({8}), leaf({8}), 3)};
       }},
      {"dropout", [] { return Tensors{std::get<0>(torch::native_dropout(leaf({8}), 0.5, true))}; }},
      {"attention",
       [] {
         return Tensors{torch::scaled_dot_product_attention(leaf({1, 2, 4, 8}), leaf({1, 2, 4, 8}), leaf({1, 2, 4, 8}), {}, 0.0, true)};
       }},
      {"lists of tensors",
       [] {
         return torch::_foreach_add({leaf({2}), leaf({3})}, {leaf({2}), leaf({3})}, 0.5);
       }},
      {"lists of tensors and scalars",
       [] {
         return torch::_foreach_mul({leaf({2}), leaf({3})}, std::vector<at::Scalar>{2.5, 3});
       }},
      {"lists of tensors, saved results",
       [] {
         return torch::_foreach_exp({leaf({2}), leaf({3})});
       }},
      {"lists of tensors, three",
       [] {
         return torch::_foreach_addcmul({leaf({2}), leaf({3})}, {leaf({2}), leaf({3})}, {leaf({2}), leaf({3})}, 0.25);
       }},
      {"linear algebra",
       [] {
         auto a = leaf({3, 3}) + torch::eye(3);
         return Tensors{torch::linalg_inv(a),
                        torch::linalg_solve(a, leaf({3})),
                        torch::linalg_det(a),
                        torch::einsum("ij,jk->ik", {a, a}),
                        torch::linalg_cholesky(a.mm(a.t()) + torch::eye(3)),
                        std::get<1>(torch::linalg_svd(a))};
       }},
      {"fft",
       [] {
         return Tensors{torch::fft_rfft(leaf({8})).abs(), torch::fft_ifft(leaf({8}, at::kComplexFloat)).abs()};
       }},
      {"complex",
       [] {
         auto z = leaf({4}, at::kComplexDouble);
         return Tensors{(z * c10::complex<double>(1, 2)).abs(), torch::real(z), z.conj().angle(), torch::view_as_real(z)};
       }},
      {"cast",
       [] {
         return Tensors{leaf({4}).to(at::kDouble), leaf({4}).to(at::kBFloat16)};
       }},
      {"matmul and ctc",
       [] {
         return Tensors{torch::matmul(leaf({2, 3, 4}), leaf({4, 5})),
                        torch::ctc_loss(leaf({6, 2, 5}).log_softmax(2), torch::randint(1, 5, {2, 3}, at::kLong), at::IntArrayRef({6, 6}),
                                        at::IntArrayRef({3, 3}))};
       }},
      {"lstm cell",
       [] {
         auto [h, c] = torch::lstm_cell(leaf({2, 3}), {leaf({2, 4}), leaf({2, 4})}, leaf({16, 3}), leaf({16, 4}), leaf({16}), leaf({16}));
         return Tensors{h, c};
       }},
      {"distances and grids",
       [] {
         return Tensors{torch::cdist(leaf({4, 3}), leaf({5, 3})), torch::grid_sampler(leaf({1, 2, 4, 4}), leaf({1, 3, 3, 2}), 0, 0, true),
                        torch::renorm(leaf({3, 4}), 2, 0, 0.75)};
       }},
  };
}

std::vector<capture::NodePtr> nodes_below(const Tensors& outputs) {
  std::vector<capture::NodePtr> nodes;
  std::unordered_set<const Node*> seen;
  const auto add = [&](const capture::NodePtr& node) {
    if (node && seen.insert(node.get()).second) nodes.push_back(node);
  };
  for (const auto& output : outputs) add(output.grad_fn());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const auto& edge : nodes[i]->next_edges()) add(edge.function);
  }
  return nodes;
}

TEST(TypedCollectors, EveryGeneratedClassIsReadAsLibTorchReadsIt) {
  size_t generated = 0;
  for (const auto block : capture::typed_collectors()) generated += block.size();
  EXPECT_EQ(sample_nodes().size(), generated);
  for (const auto& sample : sample_nodes()) {
    SampleValues values;
    const auto node = capture::own_node(sample.make(values));
    // The query which outputs are needed expects as many edges as the forward had inputs; none of them leads anywhere.
    for (int i = 0; i < 64; ++i) node->add_next_edge({});
    try {
      EXPECT_EQ(first_disagreement(*node), "") << sample.name;
    } catch (const std::exception& error) {
      ADD_FAILURE() << sample.name << ": " << error.what();
    }
  }
}

TEST(TypedCollectors, LiveNodesAreReadAsLibTorchReadsThem) {
  torch::manual_seed(1);
  std::set<std::string> classes, without;
  for (const auto& forward : forwards()) {
    const auto outputs = forward.run();
    for (const auto& node : nodes_below(outputs)) {
      if (capture::find_typed_collector(*node) == nullptr) {
        without.insert(node->name());
        continue;
      }
      classes.insert(node->name());
      EXPECT_EQ(first_disagreement(*node), "") << forward.name << ", " << node->name();
    }
  }
  EXPECT_GE(classes.size(), 130u);
  const std::set<std::string> handwritten = {"torch::autograd::CopySlices", "torch::autograd::AccumulateGrad",
                                             "torch::autograd::CopyBackwards"};
  EXPECT_EQ(without, handwritten);
}

TEST(TypedCollectors, UndefinedSavedTensorsAreRead) {
  const auto product = leaf({3}) * torch::ones({3});  // the constant needs no gradient, so the leaf is not saved
  const auto* collector = capture::find_typed_collector(*product.grad_fn());
  ASSERT_NE(collector, nullptr);
  const auto reading = read_with_collector(*collector, *product.grad_fn());
  ASSERT_EQ(reading.tensors.size(), 2u);
  EXPECT_TRUE(reading.tensors[0].defined());
  EXPECT_FALSE(reading.tensors[1].defined());
}

TEST(TypedCollectors, FieldsAreNamedAsInLibTorch) {
  const auto names_of = [](const at::Tensor& tensor) {
    const auto* collector = capture::find_typed_collector(*tensor.grad_fn());
    return std::vector<std::string>(collector->fields, collector->fields + collector->field_count);
  };
  const auto x = leaf({2, 3});
  EXPECT_EQ(names_of(x * x), (std::vector<std::string>{"other", "other_scalar_type", "self", "self_scalar_type"}));
  EXPECT_EQ(names_of(torch::add(x, x, 0.5)), (std::vector<std::string>{"alpha", "other_scalar_type", "self_scalar_type"}));
  // List sizes first: they are packed first.
  EXPECT_EQ(names_of(torch::cat({x, x})),
            (std::vector<std::string>{"tensors_size", "dim", "tensors_args_scalartypes", "tensors_args_sizes_symint"}));
}

struct Handwritten : Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override { return std::move(grads); }
};

TEST(TypedCollectors, NodesThatLibTorchDoesNotGenerateHaveNone) {
  Handwritten node;
  const auto accumulate = torch::autograd::impl::grad_accumulator(leaf({1}));
  for (int again = 0; again < 2; ++again) {  // the first answer is remembered
    EXPECT_EQ(capture::find_typed_collector(node), nullptr);
    EXPECT_EQ(capture::find_typed_collector(*accumulate), nullptr);
  }
}

}  // namespace
}  // namespace hindcast::tests
