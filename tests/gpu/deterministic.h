#pragma once
// Two runs of LibTorch's operators give the same bits, as far as LibTorch can do that on a card.

#include <ATen/Context.h>
#include <c10/util/Exception.h>

namespace hindcast::tests {

class Deterministic {
 public:
  Deterministic() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
  }
  ~Deterministic() {
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
    at::globalContext().setDeterministicCuDNN(false);
  }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  /// LibTorch says of each operator that has no such way.
  struct NoWarnings : c10::WarningHandler {
    void process(const c10::Warning& /*warning*/) override {}
  };

  NoWarnings no_warnings_;
  const c10::WarningUtils::WarningHandlerGuard silence_{&no_warnings_};
};

}  // namespace hindcast::tests
