#include "codegen/kernel/angles.h"

#include "base/format.h"
#include "codegen/fuse/functors.h"
#include "codegen/kernel/body_text.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace hindcast::codegen {
namespace {

using base::format;

/// An upper bound on a value's magnitude. NaN is excepted: near functors return NaN for it as well.
struct Bound {
  std::string text;  // an expression
  double size;       // NaN if known only to the kernel
};

// Smaller than kNearAngle by more than the rounding errors of computed bounds.
constexpr double kSurelyNear = 0x1p15;
constexpr size_t kLongestText = 200;

std::optional<Bound> known(double size) { return Bound{format("{}.0", static_cast<int>(size)), size}; }

std::optional<Bound> bound_of_function(const Functor& functor) {
  if (functor.result == Functor::Result::BOOL) return known(1);
  for (const std::string_view name : {"sin", "cos", "tanh", "sigmoid", "hardsigmoid", "erf", "sign", "sgn"}) {
    if (functor.name == name) return known(1);
  }
  for (const std::string_view name : {"erfc", "asin", "atan"}) {
    if (functor.name == name) return known(2);
  }
  if (functor.name == "acos" || functor.name == "atan2") return known(4);
  return std::nullopt;
}

class Bounds {
 public:
  explicit Bounds(const Body& body) : body_(body) {
    for (const BodyOp& op : body.ops) of_ops_.push_back(of(op));
  }

  std::optional<Bound> of(Operand operand) const {
    if (operand.kind == Operand::Kind::Result) return of_ops_[operand.index];
    if (operand.kind == Operand::Kind::Load) {
      const BodyLoad& load = body_.loads[operand.index];
      if (load.type == at::kBool) return known(1);
      if (load.pattern != AccessPattern::Broadcast || c10::isIntegralType(load.type, /*includeBool=*/false)) return std::nullopt;
    }
    return Bound{format("magnitude_of({})", name_of(operand)), std::numeric_limits<double>::quiet_NaN()};
  }

 private:
  std::optional<Bound> of(const BodyOp& op) const {
    const Functor* functor = op.kind == BodyOp::Kind::Functor ? find_functor(op.function) : nullptr;
    if (functor == nullptr) return std::nullopt;
    if (functor->name == "neg" || functor->name == "abs") return of(op.args[0]);
    if (functor->name == "square") return product(of(op.args[0]), of(op.args[0]));
    if (functor->name == "mul") return product(of(op.args[0]), of(op.args[1]));
    if (functor->name == "add" || functor->name == "sub") return sum(of(op.args[0]), of(op.args[1]));
    return bound_of_function(*functor);
  }

  static std::optional<Bound> product(const std::optional<Bound>& a, const std::optional<Bound>& b) {
    if (!a || !b || a->text.size() + b->text.size() > kLongestText) return std::nullopt;
    return Bound{format("{} * {}", a->text, b->text), a->size * b->size};
  }
  static std::optional<Bound> sum(const std::optional<Bound>& a, const std::optional<Bound>& b) {
    if (!a || !b || a->text.size() + b->text.size() > kLongestText) return std::nullopt;
    return Bound{format("({} + {})", a->text, b->text), a->size + b->size};
  }

  const Body& body_;
  std::vector<std::optional<Bound>> of_ops_;
};

// Scalar angles do not count: they are not computed per element.
bool is_of_angle(const BodyOp& op) { return takes_angle(op.function) && op.args[0].kind != Operand::Kind::Scalar; }

bool is_surely_near(const std::optional<Bound>& bound) { return bound && bound->size <= kSurelyNear; }

template <class T>
void add_once(std::vector<T>& all, const T& one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

}  // namespace

Angles angles_of(const Body& body, c10::function_ref<bool(size_t op)> takes_part) {
  Angles angles;
  std::optional<Bounds> bounds;
  for (size_t i = 0; i < body.ops.size(); ++i) {
    if (!is_of_angle(body.ops[i]) || !takes_part(i)) continue;
    const Operand angle = body.ops[i].args[0];
    if (angle.kind == Operand::Kind::Load) {
      add_once(angles.loads, size_t{angle.index});
      continue;
    }
    if (!bounds) bounds.emplace(body);
    const std::optional<Bound> bound = bounds->of(angle);
    if (is_surely_near(bound)) continue;
    if (bound) {
      add_once(angles.bounds, bound->text);
    } else {
      add_once(angles.results, angle);
    }
  }
  return angles;
}

Angles angles_of(const Body& body) {
  return angles_of(body, [](size_t) { return true; });
}

std::string_view form_of(const Body& body, size_t op, bool near, const CostModel& costs) {
  if (!is_of_angle(body.ops[op])) return "";
  if (near) return "_near";
  const Bounds bounds(body);
  const auto is_near = [&](const BodyOp& one) {
    return one.args[0].kind == Operand::Kind::Result && is_surely_near(bounds.of(one.args[0]));
  };
  if (is_near(body.ops[op])) return "_near";
  const auto may_be_far = [&](const BodyOp& one) { return is_of_angle(one) && !is_near(one); };
  const auto far = static_cast<size_t>(std::count_if(body.ops.begin(), body.ops.end(), may_be_far));
  return costs.are_far_angles_inlined(far) ? "" : "_called";
}

Ingredients ingredients_of(const Body& body, const std::vector<Operand>& operands, c10::function_ref<bool(size_t op)> is_computed) {
  Ingredients found{std::vector<bool>(body.loads.size()), std::vector<bool>(body.ops.size())};
  const auto add = [&](Operand operand) {
    if (operand.kind == Operand::Kind::Load) found.loads[operand.index] = true;
    if (operand.kind == Operand::Kind::Result) found.ops[operand.index] = true;
  };
  std::for_each(operands.begin(), operands.end(), add);
  for (size_t i = body.ops.size(); i-- > 0;) {
    if (found.ops[i] && is_computed(i)) std::for_each(body.ops[i].args.begin(), body.ops[i].args.end(), add);
  }
  return found;
}

std::string far_line(const Body& body, Operand angle) {
  const std::string_view type = type_name(body.compute);
  const bool is_converted = angle.kind == Operand::Kind::Load && body.loads[angle.index].type != body.compute;
  const std::string value = is_converted ? format("convert<{}>({})", type, name_of(angle)) : name_of(angle);
  return format("far |= !(magnitude_of({}) <= kNearAngle<{}>);", value, type);
}

std::string far_line(const Body& body, const std::string& bound) {
  return format("far |= !({} <= 0.99 * kNearAngle<{}>);", bound, type_name(body.compute));
}

}  // namespace hindcast::codegen
