// A thousand steps of a small language model in which nearly everything changes that changes in real training: batch sizes, sequence
// lengths, the way gradients are zeroed, the number of backwards per step, a loss scale that never repeats.
//
// There are two structures: the loss alone, and on every fourth step the loss plus a penalty on the head's weight, with extra nodes.
// Zeroing and accumulating create no structure, since a graph does not depend on the contents of `.grad`; sizes and the scale are facts.
// Each structure is captured twice: statically, and at its second backward, where batch, length and scale are all new, as the dynamic graph
// that serves all later ones.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hindcast/hindcast.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

constexpr int kSteps = 1000;
constexpr int kKeptEvery = 25;
constexpr uint64_t kStructures = 2;
constexpr int64_t kVocabulary = 19, kWidth = 8, kHeads = 2;

at::Tensor parameter(at::IntArrayRef sizes) { return (at::randn(sizes) * 0.3).set_requires_grad(true); }

/// Embedding, one attention layer, one pointwise layer, cross entropy over the vocabulary.
struct LanguageModel {
  at::Tensor embedding = parameter({kVocabulary, kWidth});
  at::Tensor first_norm = parameter({kWidth}), first_shift = parameter({kWidth});
  at::Tensor project = parameter({3 * kWidth, kWidth}), project_bias = parameter({3 * kWidth});
  at::Tensor out = parameter({kWidth, kWidth});
  at::Tensor second_norm = parameter({kWidth}), second_shift = parameter({kWidth});
  at::Tensor widen = parameter({2 * kWidth, kWidth}), narrow = parameter({kWidth, 2 * kWidth});
  at::Tensor head = parameter({kVocabulary, kWidth}), head_bias = parameter({kVocabulary});

  std::vector<at::Tensor> parameters() const {
    return {embedding, first_norm, first_shift, project, project_bias, out, second_norm, second_shift, widen, narrow, head, head_bias};
  }

  at::Tensor attend(const at::Tensor& x) const {
    const int64_t batch = x.size(0), length = x.size(1);
    const auto all = at::linear(x, project, project_bias).reshape({batch, length, 3, kHeads, kWidth / kHeads});
    const auto parts = all.permute({2, 0, 3, 1, 4});  // {query, key, value} x {batch, heads, length, width of a head}
    const auto scores = at::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(double{kWidth / kHeads});
    const auto mixed = at::matmul(at::softmax(scores, -1), parts[2]).transpose(1, 2);
    return at::linear(mixed.reshape({batch, length, kWidth}), out);
  }

  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets) const {
    auto x = at::embedding(embedding, tokens);
    x = x + attend(at::layer_norm(x, {kWidth}, first_norm, first_shift));
    x = x + at::linear(at::linear(at::layer_norm(x, {kWidth}, second_norm, second_shift), widen).relu(), narrow);
    return at::cross_entropy_loss(at::linear(x, head, head_bias).flatten(0, 1), targets.flatten());
  }
};

/// Sizes of the n-th backward: all pairs of 5 batches and 7 lengths, never the same twice in a row.
int64_t batch_of(int backward) { return 2 + backward * 7 % 5; }
int64_t length_of(int backward) { return 3 + backward * 5 % 7; }

bool has_penalty(int step) { return step % 4 == 3; }
int backwards_of(int step) { return 1 + step % 3; }
double scale_of(int step) { return 0.5 + step / 1024.0; }

/// FNV-1a over all bytes of all gradients: any changed bit changes it.
uint64_t hash_of_grads(const std::vector<at::Tensor>& parameters) {
  uint64_t hash = 14695981039346656037ULL;
  for (const at::Tensor& parameter : parameters) {
    const auto grad = parameter.grad().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(grad.const_data_ptr());
    for (size_t i = 0; i < grad.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211ULL;
  }
  return hash;
}

struct Record {
  std::vector<uint64_t> hashes;               // per step
  std::vector<std::vector<at::Tensor>> kept;  // all gradients of every 25th step
  uint64_t backwards = 0;
};

void zero_grad(const std::vector<at::Tensor>& parameters, bool set_to_none) {
  for (at::Tensor parameter : parameters) {
    if (set_to_none) {
      parameter.mutable_grad() = at::Tensor();
    } else if (parameter.grad().defined()) {
      parameter.grad().zero_();
    }
  }
}

Record train() {
  at::manual_seed(3);
  const LanguageModel model;
  const auto parameters = model.parameters();
  Record run;
  for (int step = 0; step < kSteps; ++step) {
    zero_grad(parameters, /*set_to_none=*/step % 5 < 2);
    for (int i = 0; i < backwards_of(step); ++i, ++run.backwards) {
      const auto sizes = {batch_of(static_cast<int>(run.backwards)), length_of(static_cast<int>(run.backwards))};
      const auto tokens = at::randint(kVocabulary, sizes, at::kLong), targets = at::randint(kVocabulary, sizes, at::kLong);
      auto loss = model.loss(tokens, targets);
      if (has_penalty(step)) loss = loss + model.head.pow(2).mean();
      loss.mul(at::Scalar(scale_of(step))).backward();
    }
    run.hashes.push_back(hash_of_grads(parameters));
    if (step % kKeptEvery == 0) {
      auto& kept = run.kept.emplace_back();
      for (const auto& parameter : parameters) kept.push_back(parameter.grad().clone());
    }
    for (at::Tensor parameter : parameters) parameter.data().sub_(parameter.grad(), 0.02);
  }
  return run;
}

void expect_same_bits(const Record& stock, const Record& ours) {
  for (size_t i = 0; i < stock.kept.size(); ++i) {
    for (size_t p = 0; p < stock.kept[i].size(); ++p) {
      ASSERT_EQ(first_difference(stock.kept[i][p], ours.kept[i][p]), "") << "step " << i * kKeptEvery << ", parameter " << p;
    }
  }
  for (int step = 0; step < kSteps; ++step) ASSERT_EQ(stock.hashes[step], ours.hashes[step]) << "step " << step;
}

TEST(ThousandSteps, GiveTheStockGradientsFromTwoCapturesAStructure) {
  const Record stock = train();
  hindcast::reset();
  Record ours;
  {
    const auto guard = hindcast::enable();
    ours = train();
  }
  expect_same_bits(stock, ours);

  const Stats stats = hindcast::stats();
  EXPECT_EQ(stats.unique_graphs, 2 * kStructures) << hindcast::report();
  // A structure is new once. Each is captured again: its first capture is for one scale, which never comes back.
  EXPECT_EQ(stats.misses_by_reason, (std::map<std::string, uint64_t>{{"NewNode", kStructures}, {"ChangedScalar", kStructures}}));
  EXPECT_EQ(stats.backwards, ours.backwards);
  EXPECT_EQ(stats.hits, ours.backwards - 2 * kStructures);
  EXPECT_TRUE(stats.opaque_nodes.empty()) << hindcast::report();
  EXPECT_TRUE(stats.fallbacks_by_reason.empty()) << hindcast::report();
}

}  // namespace
}  // namespace hindcast::tests
