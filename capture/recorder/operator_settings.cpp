#include "capture/recorder/operator_settings.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <limits>

namespace hindcast::capture {

using at::Float32Backend;
using at::Float32Op;

uint64_t operator_settings() {
  const auto& context = at::globalContext();
  PackedBits settings;
  settings.add(context.deterministicAlgorithms(), 1);
  settings.add(context.deterministicAlgorithmsWarnOnly(), 1);
  settings.add(context.deterministicFillUninitializedMemory(), 1);
  settings.add(context.userEnabledMkldnn(), 1);
  settings.add(context.userEnabledNNPACK(), 1);
  // By backend: LibTorch's query without a backend throws if a program uses both its older and its newer switches.
  settings.add(context.float32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL), 2);
  settings.add(context.float32Precision(Float32Backend::MKLDNN, Float32Op::CONV), 2);
  settings.add(c10::get_default_dtype_as_scalartype(), 8);
  return settings.word();
}

uint64_t accelerator_settings() {
  auto& context = at::globalContext();
  PackedBits settings;
  // The requested precisions, each one of four: the older TF32 switches are derived from these.
  settings.add(context.float32Precision(Float32Backend::GENERIC, Float32Op::ALL), 2);
  for (const Float32Op op : {Float32Op::ALL, Float32Op::CONV, Float32Op::RNN, Float32Op::MATMUL}) {
    settings.add(context.float32Precision(Float32Backend::CUDA, op), 2);
  }
  settings.add(context.userEnabledCuDNN(), 1);
  settings.add(context.benchmarkCuDNN(), 1);
  settings.add(context.deterministicCuDNN(), 1);
  settings.add(context.allowFP16ReductionCuBLAS(), 2);
  settings.add(context.allowBF16ReductionCuBLAS(), 2);
  settings.add(context.allowFP16AccumulationCuBLAS(), 1);
  // Querying the library of matrix products settles the default first: no query is without that side effect.
  settings.add(context.blasPreferredBackend(), 2);
  settings.add(context.linalgPreferredBackend(), 2);
  constexpr int kMostTried = (1 << 12) - 1;  // a library has fewer algorithms
  settings.add(std::clamp(context.benchmarkLimitCuDNN(), 0, kMostTried), 12);
  return settings.word();
}

bool flushes_denormals() {
  const volatile double denormal = std::numeric_limits<double>::denorm_min();
  return denormal * 1. == 0.;
}

}  // namespace hindcast::capture
