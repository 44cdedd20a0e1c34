#include "codegen/passes/instr_key.h"

#include <ATen/core/enum_tag.h>

#include <bit>
#include <string_view>
#include <type_traits>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Instr;
using capture::ValueId;

class KeyWriter {
 public:
  template <class T>
  void add(const T& number) {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(T));
  }
  void add(double number) { add(std::bit_cast<uint64_t>(number)); }
  void add(bool truth) { add(static_cast<uint8_t>(truth)); }
  void add(std::string_view text) {
    add(text.size());
    bytes_.append(text);
  }
  template <class List>
  void add_all(const List& list) {
    add(list.size());
    for (const auto& item : list) add(item);
  }

  /// Returns false if the constant cannot be compared.
  bool add(const c10::IValue& constant) {
    // Begins with the kind, since an equal number of another type may give a result of another type.
    const auto kind = [&](char letter) { bytes_.push_back(letter); };
    if (constant.isNone()) {
      kind('n');
    } else if (constant.isBool()) {
      kind('b');
      add(constant.toBool());
    } else if (constant.isInt()) {
      kind('i');
      add(constant.toInt());
    } else if (constant.isDouble()) {
      kind('d');
      add(constant.toDouble());
    } else if (constant.isString()) {
      kind('s');
      add(std::string_view(constant.toStringRef()));
    } else if (constant.isDevice()) {
      kind('D');
      add(constant.toDevice().type());
      add(constant.toDevice().index());
    } else if (constant.isIntList()) {
      kind('I');
      add_all(constant.toIntVector());
    } else if (constant.isDoubleList()) {
      kind('F');
      add_all(constant.toDoubleVector());
    } else if (constant.isBoolList()) {
      kind('B');
      add(constant.toBoolList().size());
      for (const bool truth : constant.toBoolList()) add(truth);
    } else if (constant.isTensor()) {
      kind('t');
      add(constant.toTensor().unsafeGetTensorImpl());
    } else {
      return false;
    }
    return true;
  }

  std::string take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace

bool is_pure(const Instr& instr) {
  const auto& op = *instr.op;
  if (op.schema().returns().empty()) return false;  // its effect is to throw for a bad operand, as _linalg_check_errors does
  const std::string_view name = op.operator_name().name;
  return (name.starts_with("aten::") || name.starts_with("hindcast::")) && !op.hasTag(at::Tag::nondeterministic_seeded) &&
         !op.hasTag(at::Tag::maybe_aliasing_or_mutating) && !op.schema().is_mutable();
}

std::optional<std::string> key_of(const Instr& instr, const Rewrite& rewrite) {
  if (!is_pure(instr)) return std::nullopt;
  KeyWriter key;
  key.add(&instr.op->schema());  // the address in the dispatcher's entry, which is unique per operator
  for (const Arg& arg : instr.args) {
    key.add(static_cast<uint8_t>(arg.kind));
    if (arg.kind == Arg::Kind::Constant && !key.add(arg.constant)) return std::nullopt;
    key.add(arg.values.size());
    for (const ValueId value : arg.values) key.add(rewrite.replacement_of(value).index);
    key.add(arg.exprs.size());
    for (const capture::ExprId expr : arg.exprs) key.add(expr.index);
  }
  return std::move(key).take();
}

}  // namespace hindcast::codegen
