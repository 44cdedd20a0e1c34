#include "tests/cuda_emulator/restrict_trap.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace hindcast::tests::cuda {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Nor launch bounds, which look like a kernel's name and parameters.
std::string without_comments(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|__launch_bounds__\s*\([^)]*\))"), " ");
}

/// Behind the bracket that closes the one at `open`.
size_t behind_bracket(const std::string& text, size_t open) {
  const char opens = text[open], closes = opens == '(' ? ')' : opens == '[' ? ']' : '}';
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == opens) ++depth;
    if (text[i] == closes && --depth == 0) return i + 1;
  }
  return text.size();
}

/// Where each use of the name starts.
std::vector<size_t> uses_of(const std::string& name, const std::string& text) {
  std::vector<size_t> uses;
  for (size_t i = text.find(name); i != std::string::npos; i = text.find(name, i + 1)) {
    const bool starts = i == 0 || !is_word(text[i - 1]), ends = i + name.size() == text.size() || !is_word(text[i + name.size()]);
    if (starts && ends) uses.push_back(i);
  }
  return uses;
}

struct Use {
  bool written = false, read = false;
};

/// What the operator at `i` does to what stands before it.
Use assigned_at(const std::string& text, size_t i) {
  const std::string rest = text.substr(i, 3);
  if (rest.starts_with("==")) return {.read = true};
  if (rest.starts_with("=")) return {.written = true};
  for (const std::string change : {"++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}) {
    if (rest.starts_with(change)) return {.written = true, .read = true};
  }
  return {.read = true};
}

/// The name of the function in whose arguments `i` is; of casts, none.
std::string called_around(const std::string& text, size_t i) {
  int depth = 0;
  while (i-- > 0) {
    if (text[i] == ';' || text[i] == '{' || text[i] == '}') return "";
    if (text[i] == ')' || text[i] == ']') ++depth;
    if (text[i] != '(' && text[i] != '[') continue;
    if (depth-- > 0) continue;
    if (text[i] == '[') return "";
    size_t begin = i;
    while (begin > 0 && is_word(text[begin - 1])) --begin;
    return text.substr(begin, i - begin);
  }
  return "";
}

/// `*name = `, `name[i] = `, `reinterpret_cast<float4*>(name + i)[0] = `: from behind the name over brackets and sums to the operator.
Use use_at(const std::string& text, size_t begin, size_t length) {
  const std::string function = called_around(text, begin);
  if (function.starts_with("store") || function.starts_with("atomic")) return {.written = true};
  size_t i = begin + length;
  bool dereferenced = false;
  int open = 0;  // brackets around the name, at least those that have been left
  while (i < text.size()) {
    const char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
    } else if (c == '[') {
      dereferenced = true;
      i = behind_bracket(text, i);
    } else if (c == ')') {
      ++open;
      ++i;
    } else if (c == '.' || (open == 0 && !dereferenced && c == '+' && text[i + 1] != '+' && text[i + 1] != '=')) {
      // A member, or an address a little further on: over what belongs to it.
      ++i;
      while (i < text.size() && (is_word(text[i]) || text[i] == ' ' || text[i] == '*' || text[i] == '(')) {
        i = text[i] == '(' ? behind_bracket(text, i) : i + 1;
      }
    } else {
      break;
    }
  }
  const size_t before = text.find_last_not_of(" (\n", begin == 0 ? 0 : begin - 1);
  const bool starred = before != std::string::npos && (text[before] == '*' || text[before] == '>');
  if (!dereferenced && !starred) return {.written = true, .read = true};
  return i < text.size() ? assigned_at(text, i) : Use{.read = true};
}

bool is_trap(const std::string& name, const std::string& body) {
  Use all;
  for (const size_t begin : uses_of(name, body)) {
    const Use use = use_at(body, begin, name.size());
    all.written |= use.written;
    all.read |= use.read;
  }
  return all.written && all.read;
}

}  // namespace

std::vector<RestrictTrap> find_restrict_trap(const std::string& original) {
  const std::string text = without_comments(original);
  std::vector<RestrictTrap> traps;
  const std::regex head(R"(__global__[\w\s]*?(\w+)\s*\()");
  const std::regex parameter(R"(\*\s*__restrict__\s+(\w+))");
  for (std::sregex_iterator kernel(text.begin(), text.end(), head), end; kernel != end; ++kernel) {
    const size_t open = kernel->position() + kernel->length() - 1, close = behind_bracket(text, open);
    const size_t body = text.find('{', close);
    if (body == std::string::npos) continue;
    const std::string parameters = text.substr(open, close - open), statements = text.substr(body, behind_bracket(text, body) - body);
    for (std::sregex_iterator found(parameters.begin(), parameters.end(), parameter); found != end; ++found) {
      const size_t start = parameters.find_last_of(",(", found->position());
      if (parameters.substr(start, found->position() - start).find("const") != std::string::npos) continue;
      if (is_trap((*found)[1], statements)) traps.push_back({(*kernel)[1], (*found)[1]});
    }
  }
  return traps;
}

}  // namespace hindcast::tests::cuda
