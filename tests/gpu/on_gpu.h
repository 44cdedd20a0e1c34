#pragma once
// Tests that need a card. Everywhere else they are skipped, with a reason.

#include "codegen/cuda/card.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <string>

namespace hindcast::tests {

/// Empty: there is a card, and LibTorch's part for CUDA is loaded. Else why not.
const std::string& why_no_gpu();

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) GTEST_SKIP() << "no CUDA device: " << why_no_gpu();
  }
};

/// Until the current stream is done.
void synchronize();

/// The machine of the process, which is the card.
const codegen::cuda::Card& card();

}  // namespace hindcast::tests
