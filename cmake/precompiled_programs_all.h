// Precompiled for tests, examples and benchmarks that use all of LibTorch's C++ API. A file must still include what it uses:
// this only saves time.
#pragma once

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
