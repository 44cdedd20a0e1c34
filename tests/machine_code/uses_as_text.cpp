#include "tests/machine_code/uses_as_text.h"

#include <array>
#include <charconv>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace hindcast::tests {
namespace {

constexpr std::array<std::pair<const char*, int KernelUse::*>, 3> kBytes = {
    {{"shared", &KernelUse::shared_bytes}, {"stack", &KernelUse::stack_bytes}, {"spilled", &KernelUse::spilled_bytes}}};

/// Throws unless `text` is a number and nothing else.
int number_in(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) throw std::invalid_argument("'" + text + "' is not a number");
  return number;
}

int KernelUse::*bytes_called(const std::string& name) {
  for (const auto& [known, member] : kBytes) {
    if (name == known) return member;
  }
  throw std::invalid_argument("'" + name + "' is none of shared, stack and spilled");
}

KernelUse use_of(const std::string& text) {
  std::istringstream parts(text);
  std::string part;
  std::getline(parts, part, ',');
  KernelUse use;
  use.registers = number_in(part);
  while (std::getline(parts, part, ',')) {
    const size_t colon = part.find(':');
    if (colon == part.npos) throw std::invalid_argument("'" + part + "' is not <kind>:<bytes>");
    use.*bytes_called(part.substr(0, colon)) = number_in(part.substr(colon + 1));
  }
  return use;
}

}  // namespace

std::string text_of(const Uses& uses) {
  std::string text;
  for (const auto& [entry, use] : uses) {
    text += (text.empty() ? "" : " ") + entry + "=" + std::to_string(use.registers);
    for (const auto& [name, member] : kBytes) {
      if (use.*member != 0) text += std::string(",") + name + ":" + std::to_string(use.*member);
    }
  }
  return text;
}

Uses uses_of(const std::string& text) {
  std::istringstream words(text);
  Uses uses;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == word.npos || equals == 0) throw std::invalid_argument("'" + word + "' is not <entry point>=<registers>");
    if (!uses.emplace(word.substr(0, equals), use_of(word.substr(equals + 1))).second)
      throw std::invalid_argument("the entry point of '" + word + "' stands twice");
  }
  if (uses.empty()) throw std::invalid_argument("no entry point follows");
  return uses;
}

}  // namespace hindcast::tests
