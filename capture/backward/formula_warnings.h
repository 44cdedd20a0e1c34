#pragma once
// Prevents repeated warnings of a formula that is tried under the recorder and may then be called again as its node.

#include <c10/util/Exception.h>

#include <vector>

namespace hindcast::capture {

class Recorder;

using Warnings = std::vector<c10::Warning>;

/// While a formula is traced: passes on its warnings, and adds them to `given`. A replay repeats the warnings of recorded operators, but
/// not those of the formula's own code; a node whose formula warns itself is called as itself.
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

/// While a node is called whose formula was tried: passes on only warnings that were not given then. (Holding back the first ones instead
/// would not work: a once-per-process warning does not come a second time.)
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
