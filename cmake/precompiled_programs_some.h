// Precompiled for tests, examples and benchmarks that use tensors and autograd, not torch::nn. A file must still include
// what it uses: this only saves time.
#pragma once

#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
