#pragma once
// What C++ warns of during a call, on its way to Python's `warnings`. LibTorch's own bindings keep warnings until they are back
// in Python and give them to PyErr_WarnEx; the call of an operator does not, and they would be written to stderr.

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace hindcast::python {

/// Keeps this thread's warnings for take_warnings() while it lives, also when what ends its life is an exception.
class KeptWarnings final : private c10::WarningHandler {
 public:
  KeptWarnings() : here_(this) {}
  ~KeptWarnings() override;
  KeptWarnings(const KeptWarnings&) = delete;
  KeptWarnings& operator=(const KeptWarnings&) = delete;

  bool any() const { return !warnings_.empty(); }

 private:
  void process(const c10::Warning& warning) override;

  std::vector<c10::Warning> warnings_;
  c10::WarningUtils::WarningHandlerGuard here_;
};

/// The category, text, file and line of each kept warning of this thread, the oldest first; they are kept no longer. A file that is
/// empty, as it mostly is, means the place in Python where the call came from.
using WarningColumns = std::tuple<std::vector<std::string>, std::vector<std::string>, std::vector<std::string>, std::vector<int64_t>>;
WarningColumns take_warnings();

}  // namespace hindcast::python
