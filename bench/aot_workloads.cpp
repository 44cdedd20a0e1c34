#include "bench/aot_workloads.h"

#include <ATen/ATen.h>

#include <utility>

namespace hindcast::bench {
namespace {

using at::Tensor;

constexpr double kDropout = 0.1;

Tensor leaf(Tensor values) { return values.set_requires_grad(true); }

AotWork of_leaves(std::function<Tensor(const Tensors&)> function, Tensors leaves) {
  return {std::move(function), leaves, leaves, at::randn(leaves.front().sizes())};
}

AotWork drawing(AotWork work) {
  work.draws = true;
  return work;
}

Tensor of_width(at::IntArrayRef sizes) { return leaf(at::randn({sizes.back()})); }
Tensor whole(at::IntArrayRef sizes) { return leaf(at::randn(sizes)); }
Tensor dropout(const Tensor& y) { return at::dropout(y, kDropout, /*train=*/true); }

AotWork bias(at::IntArrayRef sizes) {
  return of_leaves([](const Tensors& in) { return in[0] + in[1]; }, {whole(sizes), of_width(sizes)});
}

AotWork bias_gelu(at::IntArrayRef sizes) {
  return of_leaves([](const Tensors& in) { return at::gelu(in[0] + in[1]); }, {whole(sizes), of_width(sizes)});
}

AotWork bias_relu(at::IntArrayRef sizes) {
  return of_leaves([](const Tensors& in) { return at::relu(in[0] + in[1]); }, {whole(sizes), of_width(sizes)});
}

AotWork bias_dropout(at::IntArrayRef sizes) {
  return drawing(of_leaves([](const Tensors& in) { return dropout(in[0] + in[1]); }, {whole(sizes), of_width(sizes)}));
}

AotWork bias_gelu_dropout(at::IntArrayRef sizes) {
  return drawing(of_leaves([](const Tensors& in) { return dropout(at::gelu(in[0] + in[1])); }, {whole(sizes), of_width(sizes)}));
}

AotWork dropout_residual(at::IntArrayRef sizes) {
  return drawing(of_leaves([](const Tensors& in) { return dropout(in[0]) + in[1]; }, {whole(sizes), whole(sizes)}));
}

AotWork bias_dropout_residual_norm(at::IntArrayRef sizes) {
  const auto function = [](const Tensors& in) { return at::layer_norm(dropout(in[0] + in[1]) + in[2], in[3].sizes(), in[3], in[4]); };
  return drawing(of_leaves(function, {whole(sizes), of_width(sizes), whole(sizes), of_width(sizes), of_width(sizes)}));
}

// ---- rows of a few elements

AotWork loss_of(std::function<Tensor(const Tensors&)> function, Tensors leaves) { return {std::move(function), leaves, leaves, {}}; }

AotWork cross_entropy(at::IntArrayRef sizes) {
  const Tensor target = at::randint(sizes[1], {sizes[0]}, at::kLong);
  return loss_of([target](const Tensors& in) { return at::cross_entropy_loss(in[0], target); }, {whole(sizes)});
}

// The surrogate and the entropy of a policy of a few actions.
AotWork policy(at::IntArrayRef sizes) {
  const Tensor action = at::randint(sizes[1], {sizes[0], 1}, at::kLong);
  const auto function = [action](const Tensors& in) {
    const Tensor log_probs = at::log_softmax(in[0], 1);
    const Tensor entropy = -(log_probs.exp() * log_probs).sum(1);
    return -(log_probs.gather(1, action).squeeze(1).exp() + 0.01 * entropy).mean();
  };
  return loss_of(function, {whole(sizes)});
}

AotWork softmax(at::IntArrayRef sizes) {
  return loss_of([](const Tensors& in) { return (at::softmax(in[0], -1) * in[0]).sum(); }, {whole(sizes)});
}

AotWork norm(at::IntArrayRef sizes) {
  const auto function = [](const Tensors& in) { return at::layer_norm(in[0], {in[0].size(-1)}).square().sum(); };
  return loss_of(function, {whole(sizes)});
}

AotWork scaled(at::IntArrayRef sizes) {
  return loss_of([](const Tensors& in) { return (in[0] * in[1]).tanh().sum(); }, {whole(sizes), leaf(at::rand({sizes[0], 1}) + 0.5)});
}

// Directions and lengths of edges, as in a force field.
AotWork directions(at::IntArrayRef sizes) {
  const auto function = [](const Tensors& in) {
    const Tensor length = (in[0].square().sum(-1, true) + 1).sqrt();
    return (in[0] / length * in[1]).sin().sum();
  };
  return loss_of(function, {whole(sizes), leaf(at::rand({sizes[0], 1}))});
}

}  // namespace

AotWork four_cosines(at::IntArrayRef sizes) {
  return of_leaves([](const Tensors& in) { return (in[0] + in[1] + in[2] + in[3]).cos().cos(); },
                   {whole(sizes), whole(sizes), whole(sizes), whole(sizes)});
}

AotWork whole_step(Workload work, bool draws) {
  return {[forward = work.forward](const Tensors&) { return forward(); }, {}, work.leaves, work.incoming, draws, work.data};
}

const std::vector<AotPattern>& aot_patterns() {
  static const std::vector<AotPattern> patterns = {
      {"bias", bias},
      {"bias_gelu", bias_gelu},
      {"bias_relu", bias_relu},
      {"bias_dropout", bias_dropout},
      {"bias_gelu_dropout", bias_gelu_dropout},
      {"dropout_residual", dropout_residual},
      {"bias_dropout_residual_norm", bias_dropout_residual_norm},
  };
  return patterns;
}

const std::vector<AotShortRows>& aot_short_rows() {
  static const std::vector<AotShortRows> all = {
      {"cross_entropy", cross_entropy, {{128, 10}, {8192, 10}}},
      {"policy", policy, {{64, 2}, {4096, 4}}},
      {"softmax", softmax, {{65536, 4}}},
      {"layer_norm", norm, {{65536, 4}}},
      {"scaled", scaled, {{500, 3}, {65536, 4}}},
      {"directions", directions, {{3000, 3}}},
  };
  return all;
}

const std::vector<AotModel>& aot_models() {
  static const std::vector<AotModel> models = {
      {"mlp/64-128-64/b32",
       [] {
         return whole_step(mlp({64, 128, 64}, 32));
       }},
      {"mlp/784-512-512-10/b128",
       [] {
         return whole_step(mlp({784, 512, 512, 10}, 128));
       }},
      {"cnn/8x8/b64", [] { return whole_step(resnet(8, 1, 16, 64)); }},
      {"cnn/32x32/b16", [] { return whole_step(resnet(32, 3, 16, 16)); }},
      {"gpt/explicit", [] { return whole_step(gpt(Attention::Explicit), /*draws=*/true); }},
      {"gpt/fused", [] { return whole_step(gpt(Attention::Fused), /*draws=*/true); }},
      {"resnet18/64x64/b8", [] { return whole_step(resnet18(64, 8)); }},
  };
  return models;
}

}  // namespace hindcast::bench
