#include "tests/whole/ops/setting.h"

#include <array>
#include <sstream>

namespace hindcast::tests::ops {
namespace {

template <class Enum, size_t n>
const char* name_of(Enum value, const std::array<const char*, n>& names) {
  return names.at(static_cast<size_t>(value));
}

constexpr std::array<const char*, 9> kOperands = {"contiguous", "transposed", "expanded",          "sliced",        "channels-last",
                                                  "conjugated", "negated",    "transpose of leaf", "expand of leaf"};
constexpr std::array<const char*, 2> kValues = {"random", "zeros and NaN"};
constexpr std::array<const char*, 9> kRoot = {"loss",          "contiguous", "transposed", "expanded", "sliced",
                                              "channels-last", "conjugated", "zeros",      "NaN"};
constexpr std::array<const char*, 3> kOutputs = {"all", "first", "last"};
constexpr std::array<const char*, 3> kHooks = {"none", "on leaf and output", "retain_grad"};

}  // namespace

std::string describe(const Setting& setting) {
  std::ostringstream text;
  text << "N=" << setting.n << " seed=" << setting.seed << ' ' << c10::toString(setting.dtype) << ", operands "
       << name_of(setting.operands, kOperands) << ", values " << name_of(setting.values, kValues) << ", root "
       << name_of(setting.root, kRoot) << ", outputs " << name_of(setting.outputs, kOutputs) << ", hooks "
       << name_of(setting.hooks, kHooks);
  if (setting.grads_before) text << ", leaves with .grad";
  if (setting.only_leaf) text << ", only leaf " << *setting.only_leaf << " requires grad";
  if (setting.only_wanted) text << ", grad() of leaf " << *setting.only_wanted;
  return text.str();
}

}  // namespace hindcast::tests::ops
