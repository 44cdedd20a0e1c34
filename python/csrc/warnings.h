#pragma once
// Forwards C++ warnings of a call to Python's `warnings`. LibTorch's own bindings collect warnings and pass them to PyErr_WarnEx when they
// return to Python; operator calls do not, so warnings would be written to stderr.

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace hindcast::python {

/// While it lives, collects this thread's warnings for take_warnings(), also if an exception ends the call.
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

/// Returns and removes this thread's collected warnings: category, text, file and line of each, oldest first. An empty file, the usual
/// case, means the calling line in Python.
using WarningColumns = std::tuple<std::vector<std::string>, std::vector<std::string>, std::vector<std::string>, std::vector<int64_t>>;
WarningColumns take_warnings();

}  // namespace hindcast::python
