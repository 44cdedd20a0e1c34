#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/types.h>

#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

using engine::FallbackReason;

// Anomaly mode prints stack traces as warnings.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

TEST(AnomalyModeRunsOnTheStockEngine, WithItsGradients) {
  expect_refused({FallbackReason::AnomalyMode}, [] {
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
    const torch::autograd::DetectAnomalyGuard anomaly;
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    x.exp().sum().backward();
    return std::vector{x.grad()};
  });
}

TEST(AnomalyModeRunsOnTheStockEngine, WithItsError) {
  expect_refused({FallbackReason::AnomalyMode}, [] {
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
    const torch::autograd::DetectAnomalyGuard anomaly;
    const auto x = at::zeros({3}).set_requires_grad(true);
    (x.sqrt() * 0).sum().backward();  // "Function 'SqrtBackward0' returned nan values ..."
    return std::vector{x.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
