#include "python/csrc/warnings.h"

#include <iterator>
#include <utility>
#include <variant>

namespace hindcast::python {
namespace {

std::vector<c10::Warning>& waiting() {
  static thread_local std::vector<c10::Warning> waiting;
  return waiting;
}

const char* category_of(const c10::Warning& warning) {
  return std::holds_alternative<c10::DeprecationWarning>(warning.type()) ? "DeprecationWarning" : "UserWarning";
}

}  // namespace

KeptWarnings::~KeptWarnings() {
  if (!any()) return;
  waiting().insert(waiting().end(), std::make_move_iterator(warnings_.begin()), std::make_move_iterator(warnings_.end()));
}

// Only called on this thread: the engine itself forwards warnings of its other threads to the calling one.
void KeptWarnings::process(const c10::Warning& warning) { warnings_.push_back(warning); }

WarningColumns take_warnings() {
  WarningColumns columns;
  auto& [categories, texts, files, lines] = columns;
  for (const c10::Warning& warning : std::exchange(waiting(), {})) {
    const auto& place = warning.source_location();
    const bool has_place = place.file != nullptr;
    const bool names_place = has_place && !warning.verbatim();  // in PyTorch's words
    categories.emplace_back(category_of(warning));
    texts.push_back(names_place ? c10::str(warning.msg(), " (Triggered internally at ", place.file, ":", place.line, ".)") : warning.msg());
    files.emplace_back(has_place && warning.verbatim() ? place.file : "");
    lines.push_back(place.line);
  }
  return columns;
}

}  // namespace hindcast::python
