#include "tests/whole/ops/arguments.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>

#include <map>
#include <stdexcept>

namespace hindcast::tests::ops {
namespace {

using c10::IValue;
using c10::TypeKind;

[[noreturn]] void refuse(const Expr& expr, const std::string& expected) {
  throw std::invalid_argument("argument '" + expr.word + "': expected " + expected);
}

/// Names for what schemas pass as integers.
const std::map<std::string, int64_t>& named_integers() {
  static const std::map<std::string, int64_t> names = {
      {"uint8", int64_t(at::kByte)},
      {"int8", int64_t(at::kChar)},
      {"int32", int64_t(at::kInt)},
      {"int64", int64_t(at::kLong)},
      {"float16", int64_t(at::kHalf)},
      {"float32", int64_t(at::kFloat)},
      {"float64", int64_t(at::kDouble)},
      {"complex64", int64_t(at::kComplexFloat)},
      {"complex128", int64_t(at::kComplexDouble)},
      {"bool", int64_t(at::kBool)},
      {"bfloat16", int64_t(at::kBFloat16)},
      {"strided", int64_t(at::kStrided)},
      {"sparse", int64_t(at::kSparse)},
      {"sparse_csr", int64_t(at::kSparseCsr)},
      {"sparse_csc", int64_t(at::kSparseCsc)},
      {"sparse_bsr", int64_t(at::kSparseBsr)},
      {"sparse_bsc", int64_t(at::kSparseBsc)},
      {"jagged", int64_t(at::kJagged)},
      {"contiguous", int64_t(at::MemoryFormat::Contiguous)},
      {"preserve", int64_t(at::MemoryFormat::Preserve)},
      {"channels_last", int64_t(at::MemoryFormat::ChannelsLast)},
      {"channels_last_3d", int64_t(at::MemoryFormat::ChannelsLast3d)},
  };
  return names;
}

class Evaluator {
 public:
  explicit Evaluator(TensorMaker& maker) : maker_(maker) {}

  IValue value(const Expr& expr, const c10::Type& type) {
    switch (type.kind()) {
      case TypeKind::OptionalType:
        if (is_word(expr, "none")) return {};
        return value(expr, *type.castRaw<c10::OptionalType>()->getElementType());
      case TypeKind::TensorType:
        return tensor(expr);
      case TypeKind::ListType:
        return list(expr, *type.castRaw<c10::ListType>()->getElementType());
      case TypeKind::IntType:
      case TypeKind::SymIntType:
      case TypeKind::ScalarTypeType:
      case TypeKind::LayoutType:
      case TypeKind::MemoryFormatType:
        return integer(expr);
      case TypeKind::FloatType:
      case TypeKind::SymFloatType:
        return real(expr);
      case TypeKind::NumberType:
        return number(expr);
      case TypeKind::BoolType:
      case TypeKind::SymBoolType:
        return truth(expr);
      case TypeKind::StringType:
        return expr.word;
      case TypeKind::DeviceObjType:
        return c10::Device(expr.word);
      default:
        refuse(expr, "a type that the table can write, the op wants " + type.str());
    }
  }

  int64_t integer(const Expr& expr) {
    if (expr.kind == Expr::Kind::Integer) return expr.integer;
    if (is_word(expr, "N")) return maker_.setting().n;
    if (is_word(expr, "dtype")) return int64_t(maker_.setting().dtype);
    if (expr.kind == Expr::Kind::Word && named_integers().count(expr.word) != 0) return named_integers().at(expr.word);
    if (expr.kind == Expr::Kind::Call && expr.items.size() == 2) {
      if (expr.word == "+") return integer(expr.items[0]) + integer(expr.items[1]);
      if (expr.word == "-") return integer(expr.items[0]) - integer(expr.items[1]);
      if (expr.word == "*") return integer(expr.items[0]) * integer(expr.items[1]);
    }
    refuse(expr, "an integer, N, or a dtype");
  }

 private:
  static bool is_word(const Expr& expr, std::string_view word) { return expr.kind == Expr::Kind::Word && expr.word == word; }

  static bool is_op(const Expr& expr) { return expr.kind == Expr::Kind::Call && expr.word.find("::") != std::string::npos; }

  double real(const Expr& expr) { return expr.kind == Expr::Kind::Real ? expr.real : static_cast<double>(integer(expr)); }

  bool truth(const Expr& expr) {
    if (is_word(expr, "true")) return true;
    if (is_word(expr, "false")) return false;
    refuse(expr, "true or false");
  }

  IValue number(const Expr& expr) {
    if (expr.kind == Expr::Kind::Real) return expr.real;
    if (expr.kind == Expr::Kind::Call && expr.word == "cx") return c10::complex<double>(real(expr.items.at(0)), real(expr.items.at(1)));
    if (is_word(expr, "true") || is_word(expr, "false")) return truth(expr);
    return integer(expr);
  }

  IValue list(const Expr& expr, const c10::Type& element) {
    if (is_op(expr)) return result(expr);
    if (expr.kind != Expr::Kind::List && element.kind() != TypeKind::TensorType) {  // int[2] may be written as one integer
      Expr single;
      single.kind = Expr::Kind::List;
      single.items = {expr};
      return list(single, element);
    }
    switch (element.kind()) {
      case TypeKind::TensorType: {
        c10::List<at::Tensor> tensors;
        for (const Expr& item : expr.items) tensors.push_back(tensor(item));
        return tensors;
      }
      case TypeKind::OptionalType: {
        c10::List<std::optional<at::Tensor>> tensors;
        for (const Expr& item : expr.items) tensors.push_back(is_word(item, "none") ? std::nullopt : std::make_optional(tensor(item)));
        return tensors;
      }
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return sizes(expr.items, 0);
      case TypeKind::FloatType: {
        c10::List<double> reals;
        for (const Expr& item : expr.items) reals.push_back(real(item));
        return reals;
      }
      case TypeKind::BoolType: {
        c10::List<bool> truths;
        for (const Expr& item : expr.items) truths.push_back(truth(item));
        return truths;
      }
      case TypeKind::NumberType: {
        c10::impl::GenericList numbers(c10::NumberType::get());
        for (const Expr& item : expr.items) numbers.push_back(number(item));
        return numbers;
      }
      default:
        refuse(expr, "a list that the table can write, the op wants elements of type " + element.str());
    }
  }

  std::vector<int64_t> sizes(const std::vector<Expr>& items, size_t first) {
    std::vector<int64_t> sizes;
    for (size_t i = first; i < items.size(); ++i) sizes.push_back(integer(items[i]));
    return sizes;
  }

  IValue result(const Expr& call) {
    std::vector<IValue> results = call_op(call.word, call.items, maker_);
    return results.at(call.output);
  }

  at::Tensor tensor(const Expr& expr) {
    if (is_word(expr, "undefined")) return {};
    if (expr.kind != Expr::Kind::Call) refuse(expr, "a tensor");
    if (is_op(expr)) return result(expr).toTensor();
    const std::string& word = expr.word;
    if (word == "via") return tensor(expr.items.at(0)).clone();
    if (word == "const") return unattached(expr.items.at(0));
    if (word == "leaf") return maker_.leaf(unattached(expr.items.at(0)), false);
    if (word == "cast") return tensor(expr.items.at(1)).to(static_cast<at::ScalarType>(integer(expr.items.at(0))));
    if (word == "ints" || word == "vals") return written_out(expr);
    return made(expr);
  }

  /// Evaluates for the values only: leaves inside do not count as leaves of the row.
  at::Tensor unattached(const Expr& expr) {
    const c10::NoGradGuard no_grad;
    const size_t leaves = maker_.leaves().size();
    at::Tensor values = tensor(expr).detach();
    maker_.leaves().resize(leaves);
    return values;
  }

  at::Tensor written_out(const Expr& expr) {
    const std::vector<Expr>& items = expr.items.at(0).items;
    if (expr.word == "ints") return at::tensor(sizes(items, 0), at::kLong).to(device_of_operands);
    std::vector<double> reals;
    for (const Expr& item : items) reals.push_back(real(item));
    return at::tensor(reals, at::kDouble).to(device_of_operands, maker_.setting().dtype);
  }

  at::Tensor made(const Expr& expr) {
    const std::string& word = expr.word;
    const at::ScalarType dtype = maker_.setting().dtype;
    if (word == "in") return maker_.leaf(maker_.uniform(real(expr.items.at(0)), real(expr.items.at(1)), sizes(expr.items, 2)));
    if (word == "idx") return maker_.index(integer(expr.items.at(0)), sizes(expr.items, 1));
    const std::vector<int64_t> all = sizes(expr.items, 0);
    if (word == "f") return maker_.leaf(maker_.normal(all, dtype));
    if (word == "c") return maker_.leaf(maker_.normal(all, c10::toComplexType(dtype)));
    if (word == "real") return maker_.leaf(maker_.normal(all, c10::toRealValueType(dtype)));
    if (word == "g0") return maker_.constant(maker_.normal(all, dtype));
    if (word == "pos") return maker_.leaf(maker_.uniform(0.5, 2.5, all));
    if (word == "unit") return maker_.leaf(maker_.uniform(0.05, 0.95, all));
    if (word == "spd") return maker_.leaf(maker_.positive_definite(all), false);
    if (word == "zeros") return at::zeros(all, at::device(device_of_operands).dtype(dtype));
    if (word == "ones") return at::ones(all, at::device(device_of_operands).dtype(dtype));
    if (word == "mask") return maker_.mask(all);
    if (word == "perm") return maker_.permutation(all.at(0));
    if (word == "arange") return at::arange(all.at(0), at::device(device_of_operands).dtype(at::kLong));
    refuse(expr,
           "a tensor: f, g0, in, pos, unit, c, real, spd, idx, mask, perm, arange, ints, vals, zeros, ones, via, "
           "const, leaf, cast or aten::op");
  }

  TensorMaker& maker_;
};

const Expr* find_keyword(const std::vector<Expr>& arguments, const std::string& keyword) {
  for (const Expr& argument : arguments)
    if (argument.keyword == keyword) return &argument;
  return nullptr;
}

}  // namespace

std::vector<IValue> make_arguments(const c10::FunctionSchema& schema, const std::vector<Expr>& arguments, TensorMaker& maker) {
  Evaluator evaluator(maker);
  std::vector<IValue> values;
  size_t used = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    const size_t place = values.size();
    const Expr* written = find_keyword(arguments, argument.name());
    if (written == nullptr && place < arguments.size() && arguments[place].keyword.empty()) written = &arguments[place];
    if (written != nullptr) {
      values.push_back(evaluator.value(*written, *argument.real_type()));
      ++used;
    } else if (argument.default_value()) {
      values.push_back(*argument.default_value());
    } else if (argument.real_type()->kind() == TypeKind::OptionalType) {
      values.emplace_back();
    } else {
      throw std::invalid_argument("no argument '" + argument.name() + "' for " + toString(schema));
    }
  }
  if (used != arguments.size())
    throw std::invalid_argument(std::to_string(arguments.size() - used) + " arguments too many for " + toString(schema));
  return values;
}

std::vector<IValue> call_op(const std::string& name, const std::vector<Expr>& arguments, TensorMaker& maker, const OpCaller& caller) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload});
  if (!op) throw std::invalid_argument("this LibTorch has no op '" + name + "'");
  std::vector<IValue> stack = make_arguments(op->schema(), arguments, maker);
  if (caller) return caller(*op, std::move(stack));
  op->callBoxed(stack);
  return stack;
}

}  // namespace hindcast::tests::ops
