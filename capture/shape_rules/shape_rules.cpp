// Finds the rule of an op, and derives the rules of its other forms.

#include "capture/shape_rules/shape_rules.h"

#include "capture/shape_rules/shape_call.h"
#include "base/fork.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace hindcast::capture {
namespace {

constexpr RuleRow kBroadcast{"", broadcast_all};

const RuleRow* find_row(const std::string& name, const std::string& overload) {
  using Rows = std::unordered_map<std::string, const RuleRow*>;
  static constinit base::MadeOnce<const Rows> made;
  const Rows& rows = made.by([] {
    Rows by_name;
    for (const auto& table : {pointwise_rules(), reduction_rules(), view_rules(), indexing_rules(), matmul_rules(), linalg_rules(),
                              convolution_rules(), norm_rules(), factory_rules()}) {
      for (const RuleRow& row : table) {
        for (const std::string_view op : words(row.ops)) {
          if (!by_name.emplace(op, &row).second) throw std::logic_error("two shape rules for " + std::string(op));
        }
      }
    }
    for (const std::string_view op : names_of_pointwise_ops()) by_name.emplace(op, &kBroadcast);
    return by_name;
  });
  for (const std::string& key : {overload.empty() ? name : name + "." + overload, name + ".*"}) {
    if (const auto found = rows.find(key); found != rows.end()) return found->second;
  }
  return nullptr;
}

// The result is the written tensor. What is broadcast to it must still fit.
Outputs written_in_place(const ShapeCall& call) {
  const auto* self = std::get_if<Sizes>(&call.args().at(0).value);
  require(self != nullptr);
  return {*self};
}

Outputs broadcast_in_place(const ShapeCall& call) {
  const Sizes self = written_in_place(call)[0];
  call.same(broadcast_all(call).at(0), self);
  return {self};
}

// hindcast::formula receives the sizes of all results, concatenated.
Outputs of_all_results(const ShapeCall& call) {
  const Sizes all = call.integers("sizes");
  Outputs outputs;
  size_t next = 0;
  for (size_t i = 0; i < call.outputs(); ++i) {
    Sizes& sizes = outputs.emplace_back();
    for (size_t d = 0; d < call.real(i).size(); ++d) sizes.push_back(all.at(next++));
  }
  return outputs;
}

constexpr RuleRow kFormula{"", of_all_results};
constexpr RuleRow kWrittenInPlace{"", written_in_place};
constexpr RuleRow kBroadcastInPlace{"", broadcast_in_place};

bool has_write(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

const RuleRow* find_rule(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  constexpr std::string_view kNamespace = "aten::";
  if (schema.name() == "hindcast::formula") return &kFormula;
  if (!schema.name().starts_with(kNamespace)) return nullptr;
  std::string name = schema.name().substr(kNamespace.size());
  const std::string& overload = schema.overload_name();
  const auto& arguments = schema.arguments();
  if (std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& a) { return a.is_out(); })) return nullptr;

  if (const RuleRow* row = find_row(name, overload)) return row;
  const bool pointwise = op.hasTag(at::Tag::pointwise);
  const auto without_suffix = [&](std::string_view suffix) { return find_row(name.substr(0, name.size() - suffix.size()), overload); };
  if (name.ends_with("_copy")) return without_suffix("_copy");
  const bool in_place = name.ends_with("_") && !arguments.empty() && has_write(arguments[0]) && schema.returns().size() == 1 &&
                        has_write(schema.returns()[0]);
  if (in_place) {
    const RuleRow* plain = without_suffix("_");
    // These change the sizes of the tensor itself (squeeze_, resize_): only a rule of their own is valid.
    if (op.hasTag(at::Tag::inplace_view)) return plain;
    return pointwise || (plain && plain->rule == broadcast_all) ? &kBroadcastInPlace : &kWrittenInPlace;
  }
  return pointwise ? &kBroadcast : nullptr;
}

base::ForkSafe<std::mutex>& rules_mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);
auto& known_rules = *new std::unordered_map<const c10::FunctionSchema*, const RuleRow*>;

// Cached per op: tracing asks for the same few again and again, from one thread at a time or from many.
const RuleRow* rule_of(const c10::OperatorHandle& op) {
  const std::lock_guard lock(rules_mutex);
  const auto [found, is_new] = known_rules.try_emplace(&op.schema(), nullptr);
  if (is_new) found->second = find_rule(op);
  return found->second;
}

}  // namespace

std::optional<std::vector<Sizes>> infer_sizes(const c10::OperatorHandle& op, const std::vector<Argument>& args, SymbolTable& symbols,
                                              c10::ArrayRef<std::vector<int64_t>> real_outputs) {
  const RuleRow* row = rule_of(op);
  if (!row) return std::nullopt;
  try {
    return row->rule(ShapeCall(op.schema(), args, symbols, real_outputs, row->likes));
  } catch (const NoRule&) {
    return std::nullopt;
  } catch (const std::domain_error&) {  // a division by a size of zero: pin whatever sizes the op gave
    return std::nullopt;
  } catch (const std::out_of_range&) {  // a rank that the rule does not support
    return std::nullopt;
  }
}

bool matches_hints(const std::vector<Sizes>& sizes, const SymbolTable& symbols, c10::ArrayRef<std::vector<int64_t>> real_outputs) {
  return std::equal(sizes.begin(), sizes.end(), real_outputs.begin(), real_outputs.end(),
                    [&](const Sizes& ours, const std::vector<int64_t>& real) {
                      return std::equal(ours.begin(), ours.end(), real.begin(), real.end(),
                                        [&](ExprId size, int64_t number) { return symbols.hint(size) == number; });
                    });
}

bool has_shape_rule(const c10::OperatorHandle& op) { return rule_of(op) != nullptr; }

}  // namespace hindcast::capture
