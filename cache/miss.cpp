#include "cache/miss.h"

#include "base/format.h"

#include <array>
#include <string_view>

namespace hindcast::cache {
namespace {

using base::format;

struct Row {
  const char* name;
  const char* words;
};

constexpr std::array kRows = {
#define HC_ROW(enumerator, words) Row{#enumerator, words},
    HC_MISS_KINDS(HC_ROW)
#undef HC_ROW
};

const Row& row(Miss::Kind kind) { return kRows[static_cast<size_t>(kind)]; }

std::string joined(const std::vector<size_t>& numbers) {  // PyTorch puts no blank after the comma
  std::string text;
  for (const size_t number : numbers) text += format("{}{}", text.empty() ? "" : ",", number);
  return text;
}

std::string detail(const Miss& miss) {
  const std::string node = format("{} (NodeCall {})", miss.node, miss.node_call);
  const std::string change = format("{} -> {}", miss.before, miss.after);
  switch (miss.kind) {
    case Miss::Kind::NewNode:
      return format("{} with key size {}, previous key sizes=[{}]", node, miss.key_size, joined(miss.previous_key_sizes));
    case Miss::Kind::ChangedShapes:
      if (miss.made_dynamic) return format("marking size idx {} of {} as dynamic", miss.size_index, node);
      return format("size idx {} of {} {}, kept static", miss.size_index, node, change);
    case Miss::Kind::ChangedScalar:
      return format("{}: saved scalar {} {}{}", node, miss.what, change, miss.lifted ? ", now lifted" : "");
    case Miss::Kind::ChangedTensor:
    case Miss::Kind::FailedGuard:
      if (miss.before.empty() && miss.after.empty()) return format("{}: {}", node, miss.what);
      return format("{}: {} {}", node, miss.what, change);
    case Miss::Kind::LimitReached:
      return format(
          "{} would need one more than the {} variants that Options::limit allows; from now on a backward "
          "that none of them fits is not captured",
          node, miss.limit);
  }
  return {};
}

}  // namespace

const char* name(Miss::Kind kind) { return row(kind).name; }

std::string sentence(const Miss& miss) { return format("Cache miss due to {}: {}", row(miss.kind).words, detail(miss)); }

}  // namespace hindcast::cache
