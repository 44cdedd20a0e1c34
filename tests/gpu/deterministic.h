#pragma once
// Makes two runs of LibTorch's operators give the same bits, as far as LibTorch can on a card.

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <string>

namespace hindcast::tests {

/// Fixes what its libraries may choose anew in each call. Some of ATen's own operators still add in any order.
class SteadyLibraries {
 public:
  SteadyLibraries() {
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
  }
  ~SteadyLibraries() { at::globalContext().setDeterministicCuDNN(false); }
  SteadyLibraries(const SteadyLibraries&) = delete;
  SteadyLibraries& operator=(const SteadyLibraries&) = delete;
};

/// Operators too, if they have a deterministic form. Under this switch hindcast compiles no kernels: they may round differently from a
/// capture (engine/keep_capture.cpp). So it is only for tests of ATen's calls.
class DeterministicOperators {
 public:
  DeterministicOperators() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true); }
  ~DeterministicOperators() { at::globalContext().setDeterministicAlgorithms(was_on_, was_warn_only_); }
  DeterministicOperators(const DeterministicOperators&) = delete;
  DeterministicOperators& operator=(const DeterministicOperators&) = delete;

  /// An operator without a deterministic form ran: LibTorch warns of each.
  bool was_warned() const { return warnings_.said; }

 private:
  struct Warnings : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      said = said || warning.msg().find("does not have a deterministic implementation") != std::string::npos;
    }
    bool said = false;
  };

  const bool was_on_ = at::globalContext().deterministicAlgorithms();
  const bool was_warn_only_ = at::globalContext().deterministicAlgorithmsWarnOnly();
  Warnings warnings_;
  const c10::WarningUtils::WarningHandlerGuard silence_{&warnings_};
};

}  // namespace hindcast::tests
