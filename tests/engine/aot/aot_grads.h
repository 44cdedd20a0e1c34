#pragma once
// Compares a compiled function with the function itself: results and gradients of several calls.

#include <hindcast/aot.h>
#include <hindcast/hindcast.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace hindcast::tests {

using Tensors = std::vector<at::Tensor>;
using TensorsFunction = std::function<Tensors(Tensors)>;

struct AotCase {
  std::string name;
  std::function<Tensors()> inputs;  // new ones in each call, equal for equal seeds
  TensorsFunction function;
  bool is_eager = false;        // cannot be traced
  bool has_no_float64 = false;  // or gives other numbers in float64
};

/// Without kernels: programs give the stock engine's bits, and are compiled by the end of the first call.
inline AotOptions exact_programs() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  options.async = false;
  options.fallback_random = true;
  return options;
}

inline bool are_equal_with_nan(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 0, 0, /*equal_nan=*/true); }

/// How far kernels may be from float64, in addition to twice ATen's error, relative to the largest element.
inline constexpr double kRounding = 1e-6;

/// Results, and gradients of inputs that require grad, of one call and its backward.
struct Outcome {
  Tensors results, gradients;
};
template <class Call>
Outcome outcome_of(const AotCase& of, const Call& call, uint64_t seed, bool in_double = false) {
  torch::manual_seed(seed);
  Outcome outcome;
  Tensors leaves = of.inputs();
  for (at::Tensor& leaf : leaves) {
    if (!in_double || !leaf.defined() || !(leaf.is_floating_point() || leaf.is_complex())) continue;
    leaf = leaf.detach().to(leaf.is_complex() ? torch::kComplexDouble : torch::kDouble).set_requires_grad(leaf.requires_grad());
  }
  Tensors inputs;
  for (const at::Tensor& leaf : leaves) inputs.push_back(leaf.defined() && leaf.requires_grad() ? leaf * 1 : leaf);  // may be written to
  torch::manual_seed(seed + 1);
  const Tensors results = call(inputs);
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  for (const at::Tensor& result : results) {
    if (!result.defined() || !result.requires_grad()) continue;
    loss = loss + (result.is_complex() ? at::view_as_real(result) : result)
                      .to(torch::kDouble)
                      .mul(torch::linspace(1, 2, result.numel() * (result.is_complex() ? 2 : 1))
                               .view_as(result.is_complex() ? at::view_as_real(result) : result))
                      .sum();
  }
  if (loss.requires_grad()) loss.backward();
  for (const at::Tensor& result : results) outcome.results.push_back(result.defined() ? result.detach().clone() : result);
  for (const at::Tensor& input : inputs) outcome.results.push_back(input.defined() ? input.detach().clone() : input);
  for (const at::Tensor& leaf : leaves) outcome.gradients.push_back(leaf.defined() && leaf.is_leaf() ? leaf.grad() : at::Tensor());
  return outcome;
}

/// Traces, and expects programs run through ATen to give the stock engine's bits, and kernels to be as close to float64 as ATen; with both
/// partitions, with and without a guard.
void expect_like_eager(const AotCase& of);

}  // namespace hindcast::tests
