#include "capture/backward/formula_warnings.h"

#include "capture/recorder/recorder.h"

#include <algorithm>

namespace hindcast::capture {

void FormulaWarnings::process(const c10::Warning& warning) {
  if (Recorder::current() == &recorder_) recorder_.refuse("its formula warns");  // no recorder is current inside an operator
  outer_.process(warning);
  given_.push_back(warning);
}

void FurtherWarnings::process(const c10::Warning& warning) {
  const auto same = [&](const c10::Warning& one) {
    return one.source_location().line == warning.source_location().line && one.msg() == warning.msg();
  };
  const auto found = std::find_if(given_.begin(), given_.end(), same);
  if (found == given_.end()) return outer_.process(warning);
  given_.erase(found);
}

}  // namespace hindcast::capture
