#include "codegen/cuda/online_softmax.h"

#include <algorithm>
#include <optional>

namespace hindcast::codegen::cuda {
namespace {

using Kind = Reduction::Kind;
using Over = Reduction::Over;

bool is_of_row(const BodyOp& op, Kind kind) { return op.reduces(Over::Row) && op.reduction.kind == kind; }

Operand result(size_t op) { return {Operand::Kind::Result, static_cast<uint32_t>(op)}; }

const BodyOp* find_functor(const Body& body, Operand operand, std::string_view name) {
  if (operand.kind != Operand::Kind::Result) return nullptr;
  const BodyOp& op = body.ops[operand.index];
  return op.kind == BodyOp::Kind::Functor && op.function == name ? &op : nullptr;
}

// A sum of exp(x - from).
struct Powers {
  size_t maximum;  // of x
  Operand from;
};

class Rewriter {
 public:
  explicit Rewriter(const Body& body) : body_(body) {
    for (size_t i = 0; i < body.ops.size(); ++i) powers_.push_back(find_powers(i));
  }

  Body run() {
    Body to = body_;
    to.ops.clear();
    const auto add = [&](BodyOp op) {
      to.ops.push_back(std::move(op));
      return result(to.ops.size() - 1);
    };
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      BodyOp op = body_.ops[i];
      for (Operand& arg : op.args) arg = moved(arg);
      sums_.push_back({});
      if (is_maximum_of_powers(i)) {
        op.reduction.kind = Kind::Largest;
        places_.push_back(add(op));
        op.reduction.kind = Kind::Powers;
        sums_.back() = add(op);
      } else if (powers_[i]) {
        const Operand distance = add({"sub", {places_[powers_[i]->maximum], moved(powers_[i]->from)}});
        places_.push_back(add({"mul", {sums_[powers_[i]->maximum], add({"exp", {distance}})}}));
      } else {
        places_.push_back(add(op));
      }
    }
    for (BodyStore& store : to.stores) store.value = moved(store.value);
    return to;
  }

 private:
  std::optional<Powers> find_powers(size_t op) const {
    if (!is_of_row(body_.ops[op], Kind::Sum)) return std::nullopt;
    const BodyOp* const power = find_functor(body_, body_.ops[op].args[0], "exp");
    const BodyOp* const distance = power == nullptr ? nullptr : find_functor(body_, power->args[0], "sub");
    if (distance == nullptr) return std::nullopt;
    const Operand x = distance->args[0], from = distance->args[1];
    for (size_t i = 0; i < op; ++i) {
      if (is_of_row(body_.ops[i], Kind::Max) && body_.ops[i].args[0] == x && stands_for(from, result(i))) return Powers{i, from};
    }
    return std::nullopt;
  }

  // Whether `from` is the maximum, or `where(isinf(maximum), ..., maximum)`. Any other value may be infinite when the maximum is not: then
  // the sum is a NaN that cannot be derived from the pair.
  bool stands_for(Operand from, Operand maximum) const {
    if (from == maximum) return true;
    const BodyOp* const where = find_functor(body_, from, "where");
    const BodyOp* const isinf = where == nullptr ? nullptr : find_functor(body_, where->args[0], "isinf");
    return isinf != nullptr && isinf->args[0] == maximum && where->args[2] == maximum && is_made_of(where->args[1], maximum);
  }
  bool is_made_of(Operand operand, Operand maximum) const {
    if (operand == maximum || operand.kind == Operand::Kind::Scalar) return true;
    if (operand.kind == Operand::Kind::Load || body_.ops[operand.index].kind != BodyOp::Kind::Functor) return false;
    const auto& args = body_.ops[operand.index].args;
    return std::all_of(args.begin(), args.end(), [&](Operand arg) { return is_made_of(arg, maximum); });
  }

  bool is_maximum_of_powers(size_t op) const {
    for (const auto& powers : powers_) {
      if (powers && powers->maximum == op) return true;
    }
    return false;
  }

  Operand moved(Operand operand) const { return operand.kind == Operand::Kind::Result ? places_[operand.index] : operand; }

  const Body& body_;
  std::vector<std::optional<Powers>> powers_;  // by op
  std::vector<Operand> places_, sums_;         // by op of the body: its value in the new body, and for a maximum the sum of the pair
};

}  // namespace

Body with_online_softmax(const Body& body) { return Rewriter(body).run(); }

}  // namespace hindcast::codegen::cuda
