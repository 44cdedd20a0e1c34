#pragma once
// Warnings of a formula that is tried under the recorder and may then be called again as its node: each comes once.

#include <c10/util/Exception.h>

#include <vector>

namespace hindcast::capture {

class Recorder;

using Warnings = std::vector<c10::Warning>;

/// While a formula is traced: passes on what is warned of, and notes it in `given`. A replay warns again of what a recorded
/// operator does, but not of what the formula finds itself; a node whose formula does that is called as itself.
class FormulaWarnings final : private c10::WarningHandler {
 public:
  FormulaWarnings(Recorder& recorder, Warnings& given) : recorder_(recorder), given_(given), here_(this) {}

 private:
  void process(const c10::Warning& warning) override;

  Recorder& recorder_;
  Warnings& given_;
  c10::WarningHandler& outer_ = *c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard here_;
};

/// While a node is called whose formula was tried: passes on what it had not warned of then. (What it warned of then cannot be
/// held back instead: what a process warns of once does not come a second time.)
class FurtherWarnings final : private c10::WarningHandler {
 public:
  explicit FurtherWarnings(Warnings given) : given_(std::move(given)), here_(this) {}

 private:
  void process(const c10::Warning& warning) override;

  Warnings given_;
  c10::WarningHandler& outer_ = *c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard here_;
};

}  // namespace hindcast::capture
