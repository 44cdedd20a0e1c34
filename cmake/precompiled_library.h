// Precompiled for the folders of the library that use LibTorch. A file must still include what it uses: this only saves time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
