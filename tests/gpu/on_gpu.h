#pragma once
// Tests that need a card. Elsewhere they are skipped, with a reason.

#include "codegen/cuda/card.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <string>

namespace hindcast::tests {

/// Empty if there is a card, and LibTorch's part for CUDA is loaded. Else why not.
const std::string& why_no_gpu();

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) GTEST_SKIP() << "no CUDA device: " << why_no_gpu();
  }
};

/// The first card. With HINDCAST_TEST_DEVICE=cpu, the CPU: finds errors of the tests themselves without a card.
c10::Device device_of_tests();

/// Tests that can run on the CPU instead of a card.
class OnTestedDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (device_of_tests().is_cuda() && !why_no_gpu().empty()) GTEST_SKIP() << "no CUDA device: " << why_no_gpu();
  }
  static bool is_on_card() { return device_of_tests().is_cuda(); }
};

/// Waits for the current stream.
void synchronize();

/// The machine of the process, which is the card.
const codegen::cuda::Card& card();

}  // namespace hindcast::tests
