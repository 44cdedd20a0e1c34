#include "codegen/plan/unboxed_call.h"

#include "base/fork.h"

#include <ATen/core/jit_type.h>

#include <string_view>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Env;

// One parameter of an op: made once from the planned argument, evaluated at each call. `get` returns something that converts to
// the parameter type; for a symbolic list it owns the memory, which then lives in the caller's frame.
template <class T>
struct Parameter;

template <>
struct Parameter<const at::Tensor&> {
  explicit Parameter(const StepArg& arg) : slot(arg.slots.at(0).slot) {}
  const at::Tensor& get(Slots& slots, const Env&) const { return slots[slot]; }
  uint32_t slot;
};
template <>
struct Parameter<const at::Scalar&> {
  explicit Parameter(const StepArg& arg) : expr(arg.exprs) {
    if (expr.empty()) constant = arg.constant.toScalar();
  }
  at::Scalar get(Slots&, const Env& env) const { return expr.empty() ? constant : at::Scalar(env.real(expr[0])); }
  at::Scalar constant;
  c10::SmallVector<capture::ExprId, 2> expr;
};
template <>
struct Parameter<int64_t> {
  explicit Parameter(const StepArg& arg) : constant(arg.constant.toInt()) {}
  int64_t get(Slots&, const Env&) const { return constant; }
  int64_t constant;
};
template <>
struct Parameter<bool> {
  explicit Parameter(const StepArg& arg) : constant(arg.constant.toBool()) {}
  bool get(Slots&, const Env&) const { return constant; }
  bool constant;
};
template <>
struct Parameter<c10::SymInt> {
  explicit Parameter(const StepArg& arg) : expr(arg.exprs) {
    if (expr.empty()) constant = arg.constant.toInt();
  }
  c10::SymInt get(Slots&, const Env& env) const { return expr.empty() ? constant : env.integer(expr[0]); }
  int64_t constant = 0;
  c10::SmallVector<capture::ExprId, 2> expr;
};
template <>
struct Parameter<at::IntArrayRef> {
  explicit Parameter(const StepArg& arg) : constant(arg.constant.toIntVector()) {}
  at::IntArrayRef get(Slots&, const Env&) const { return constant; }
  std::vector<int64_t> constant;
};
template <>
struct Parameter<at::OptionalIntArrayRef> {
  explicit Parameter(const StepArg& arg) : present(!arg.constant.isNone()) {
    if (present) constant = arg.constant.toIntVector();
  }
  at::OptionalIntArrayRef get(Slots&, const Env&) const { return present ? at::OptionalIntArrayRef(constant) : at::OptionalIntArrayRef(); }
  bool present;
  std::vector<int64_t> constant;
};
template <>
struct Parameter<c10::SymIntArrayRef> {
  explicit Parameter(const StepArg& arg) : exprs(arg.exprs) {
    if (exprs.empty()) constant = arg.constant.toIntVector();
  }
  struct List {
    c10::SmallVector<int64_t, 6> evaluated;
    at::IntArrayRef values;
    operator c10::SymIntArrayRef() const { return c10::fromIntArrayRefSlow(values); }
  };
  List get(Slots&, const Env& env) const {
    List list;
    if (exprs.empty()) {
      list.values = constant;
      return list;
    }
    for (const auto expr : exprs) list.evaluated.push_back(env.integer(expr));
    list.values = list.evaluated;
    return list;
  }
  std::vector<int64_t> constant;
  c10::SmallVector<capture::ExprId, 2> exprs;
};
template <>
struct Parameter<at::ScalarType> {
  explicit Parameter(const StepArg& arg) : constant(arg.constant.toScalarType()) {}
  at::ScalarType get(Slots&, const Env&) const { return constant; }
  at::ScalarType constant;
};
template <>
struct Parameter<std::optional<at::ScalarType>> {
  explicit Parameter(const StepArg& arg) {
    if (!arg.constant.isNone()) constant = arg.constant.toScalarType();
  }
  std::optional<at::ScalarType> get(Slots&, const Env&) const { return constant; }
  std::optional<at::ScalarType> constant;
};
template <>
struct Parameter<std::string_view> {
  explicit Parameter(const StepArg& arg) : constant(arg.constant.toStringRef()) {}
  std::string_view get(Slots&, const Env&) const { return constant; }
  std::string constant;
};

template <class Signature>
class UnboxedCall;

template <class... Parameters>
class UnboxedCall<at::Tensor(Parameters...)> final : public OpCall {
 public:
  explicit UnboxedCall(const Step& step) : UnboxedCall(step, std::index_sequence_for<Parameters...>()) {}

  void run(const Step& step, Slots& slots, const Env& env) const override {
    at::Tensor result = std::apply([&](const auto&... parameter) { return call(slots, env, parameter...); }, parameters_);
    for (const uint32_t slot : given_away_) slots[slot].reset();
    if (step.outputs[0] != kNoSlot) slots[step.outputs[0]] = std::move(result);
  }

 private:
  template <size_t... I>
  UnboxedCall(const Step& step, std::index_sequence<I...>)
      : handle_(step.op->typed<at::Tensor(Parameters...)>()), parameters_(Parameter<Parameters>(step.args[I])...) {
    for (const StepArg& arg : step.args) {
      for (const SlotUse use : arg.slots) {
        if (use.last) given_away_.push_back(use.slot);
      }
    }
  }
  // The evaluated arguments live until the call returns.
  at::Tensor call(Slots& slots, const Env& env, const Parameter<Parameters>&... parameter) const {
    return call_with(parameter.get(slots, env)...);
  }
  template <class... Values>
  at::Tensor call_with(Values&&... values) const {
    return handle_.call(static_cast<Parameters>(values)...);
  }

  c10::TypedOperatorHandle<at::Tensor(Parameters...)> handle_;
  std::tuple<Parameter<Parameters>...> parameters_;
  std::vector<uint32_t> given_away_;
};

// One letter per parameter, by its type in the schema.
char letter(const c10::Argument& argument) {
  const auto& type = *argument.real_type();
  const auto list_of = [&](c10::TypeKind kind) { return type.castRaw<c10::ListType>()->getElementType()->kind() == kind; };
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return 'T';
    case c10::TypeKind::NumberType:
      return 'S';
    case c10::TypeKind::IntType:
      return 'i';
    case c10::TypeKind::SymIntType:
      return 'I';
    case c10::TypeKind::BoolType:
      return 'b';
    case c10::TypeKind::StringType:
      return 's';
    case c10::TypeKind::ScalarTypeType:
      return 'd';
    case c10::TypeKind::ListType:
      return list_of(c10::TypeKind::IntType) ? 'L' : list_of(c10::TypeKind::SymIntType) ? 'Y' : '?';
    case c10::TypeKind::OptionalType: {
      const auto& element = *type.castRaw<c10::OptionalType>()->getElementType();
      if (element.kind() == c10::TypeKind::ScalarTypeType) return 'D';
      if (element.kind() == c10::TypeKind::ListType && element.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::IntType)
        return 'l';
      return '?';
    }
    default:
      return '?';
  }
}

using T = const at::Tensor&;
using S = const at::Scalar&;
using Y = c10::SymIntArrayRef;
using L = at::IntArrayRef;
using l = at::OptionalIntArrayRef;
using D = std::optional<at::ScalarType>;

template <class Signature>
std::unique_ptr<const OpCall> make(const Step& step) {
  return std::make_unique<UnboxedCall<Signature>>(step);
}

const std::unordered_map<std::string_view, std::unique_ptr<const OpCall> (*)(const Step&)>& makers() {
  using Makers = std::unordered_map<std::string_view, std::unique_ptr<const OpCall> (*)(const Step&)>;
  static constinit base::MadeOnce<const Makers> table;
  return table.by([] {
    return Makers{
        {"T", make<at::Tensor(T)>},
        {"TT", make<at::Tensor(T, T)>},
        {"TTT", make<at::Tensor(T, T, T)>},
        {"TS", make<at::Tensor(T, S)>},
        {"TSS", make<at::Tensor(T, S, S)>},
        {"TTS", make<at::Tensor(T, T, S)>},
        {"TTSS", make<at::Tensor(T, T, S, S)>},
        {"TTTS", make<at::Tensor(T, T, T, S)>},
        {"TTTSS", make<at::Tensor(T, T, T, S, S)>},
        {"TY", make<at::Tensor(T, Y)>},
        {"TYb", make<at::Tensor(T, Y, bool)>},
        {"TL", make<at::Tensor(T, L)>},
        {"Ti", make<at::Tensor(T, int64_t)>},
        {"Tii", make<at::Tensor(T, int64_t, int64_t)>},
        {"TiI", make<at::Tensor(T, int64_t, c10::SymInt)>},
        {"TlbD", make<at::Tensor(T, l, bool, D)>},
        {"TLbD", make<at::Tensor(T, L, bool, D)>},
        {"TD", make<at::Tensor(T, D)>},
        {"TTid", make<at::Tensor(T, T, int64_t, at::ScalarType)>},
        {"TTs", make<at::Tensor(T, T, std::string_view)>},
    };
  });
}

}  // namespace

std::unique_ptr<const OpCall> make_unboxed_call(const Step& step) {
  const auto& schema = step.op->schema();
  if (schema.returns().size() != 1 || schema.returns()[0].type()->kind() != c10::TypeKind::TensorType) return nullptr;
  std::string letters;
  for (const auto& argument : schema.arguments()) letters += letter(argument);
  const auto found = makers().find(letters);
  if (found == makers().end()) return nullptr;
  for (size_t i = 0; i < step.args.size(); ++i) {
    const StepArg& arg = step.args[i];
    if ((letters[i] == 'T') != (arg.kind == Arg::Kind::Value)) return nullptr;  // an undefined or constant tensor
    if (letters[i] == 'S' && arg.kind == Arg::Kind::Constant && arg.constant.isNone()) return nullptr;
    if (arg.kind == Arg::Kind::Int && letters[i] != 'I') return nullptr;
    if (arg.kind == Arg::Kind::IntList && letters[i] != 'Y') return nullptr;
    if (arg.kind == Arg::Kind::Float && letters[i] != 'S') return nullptr;
  }
  return found->second(step);
}

}  // namespace hindcast::codegen
