// One expression has one id, a decision is recorded once, and everything is the same again at new values.

#include "hindcast/symbols.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hindcast::capture {
namespace {

class Symbols : public ::testing::Test {
 protected:
  std::shared_ptr<SymbolTable> table = SymbolTable::make();
  SymbolTable& t = *table;
  ExprId s0 = t.size_symbol(12), s1 = t.size_symbol(5);

  ExprId n(int64_t value) { return t.integer(value); }
  c10::SymInt sym(ExprId id) { return t.make_symint(id); }
  ExprId id(const c10::SymInt& value) { return t.expr_of(value); }

  std::string relations() const {
    std::string all;
    for (const Relation& relation : t.relations()) all += (all.empty() ? "" : "; ") + t.describe(relation);
    return all;
  }
  bool holds(std::vector<int64_t> ints, std::vector<double> floats = {}) const {
    Env env;
    const Evaluator evaluator(t, std::vector<ExprId>{});
    return evaluator.evaluate({std::move(ints), std::move(floats)}, env) && evaluator.relations_hold(env);
  }
  int64_t at(ExprId id, std::vector<int64_t> ints) const {
    Env env;
    EXPECT_TRUE(Evaluator(t, {id}).evaluate({std::move(ints), {}}, env));
    return env.integer(id);
  }
};

TEST_F(Symbols, EqualSumsAreOneExpression) {
  EXPECT_EQ(t.add(s0, s1), t.add(s1, s0));
  EXPECT_EQ(t.sub(t.add(s0, s1), s1), s0);
  EXPECT_EQ(t.sub(s0, s0), n(0));
  EXPECT_EQ(t.add(s0, n(0)), s0);
  EXPECT_EQ(t.add(t.add(s0, n(3)), n(-3)), s0);
  EXPECT_EQ(t.add(s0, s0), t.mul(n(2), s0));
  EXPECT_EQ(t.mul(n(2), t.add(s0, s1)), t.add(t.mul(s1, n(2)), t.mul(s0, n(2))));
  EXPECT_EQ(t.neg(t.neg(s0)), s0);
  EXPECT_EQ(t.add(n(2), n(3)), n(5));
}

TEST_F(Symbols, EqualProductsAreOneExpression) {
  const ExprId s2 = t.size_symbol(7);
  EXPECT_EQ(t.mul(t.mul(s0, s1), s2), t.mul(s1, t.mul(s2, s0)));
  EXPECT_EQ(t.mul(s0, n(1)), s0);
  EXPECT_EQ(t.mul(s0, n(0)), n(0));
  EXPECT_EQ(t.mul(t.mul(n(2), s0), t.mul(n(3), s1)), t.mul(n(6), t.mul(s0, s1)));
}

TEST_F(Symbols, DivisionIsRemovedOnlyWhenNothingIsRounded) {
  EXPECT_EQ(t.div(t.mul(s0, n(4)), n(4)), s0);
  EXPECT_EQ(t.div(t.mul(s0, n(4)), n(2)), t.mul(n(2), s0));
  EXPECT_EQ(t.div(t.mul(s0, s1), s1), s0);
  EXPECT_EQ(t.div(t.add(t.mul(s0, s1), s1), s1), t.add(s0, n(1)));
  EXPECT_EQ(t.div(t.mul(t.mul(s0, s0), s1), s0), t.mul(s0, s1));
  EXPECT_EQ(t.mod(t.mul(s0, s1), s0), n(0));
  EXPECT_EQ(t.mod(t.mul(n(6), s0), n(3)), n(0));
  EXPECT_NE(t.mul(n(2), t.div(s0, n(2))), s0);
  EXPECT_NE(t.div(t.mul(n(4), s0), n(8)), t.div(s0, n(3)));
  EXPECT_EQ(t.div(n(7), n(2)), n(3));
}

TEST_F(Symbols, DivisionRoundsAsPlainIntsDo) {
  const ExprId i = t.int_symbol(-7);
  EXPECT_EQ(t.hint(t.div(i, n(2))), -7 / 2);
  EXPECT_EQ(t.hint(t.mod(i, n(2))), -7 % 2);
  EXPECT_EQ(at(t.div(i, n(2)), {12, 5, -9}), -9 / 2);
  EXPECT_EQ(at(t.mod(i, n(4)), {12, 5, -9}), -9 % 4);
}

TEST_F(Symbols, MinAndMaxFollowTheForm) {
  EXPECT_EQ(t.min(s0, t.add(s0, n(1))), s0);
  EXPECT_EQ(t.max(s0, t.add(s0, s1)), t.add(s0, s1));
  EXPECT_EQ(t.max(s0, n(0)), s0);
  EXPECT_EQ(t.min(s0, s1), t.min(s1, s0));
  EXPECT_EQ(at(t.min(s0, s1), {3, 9}), 3);
  EXPECT_EQ(at(t.max(s0, s1), {3, 9}), 9);
}

TEST_F(Symbols, PrintAsPeopleWriteThem) {
  EXPECT_EQ(t.str(s0), "s0");
  EXPECT_EQ(t.str(t.mul(s0, n(2))), "2*s0");
  EXPECT_EQ(t.str(t.add(t.div(s0, n(2)), n(1))), "s0//2 + 1");
  EXPECT_EQ(t.str(t.sub(s0, t.mul(n(2), s1))), "s0 - 2*s1");
  EXPECT_EQ(t.str(t.add(s0, n(-1))), "s0 - 1");
  EXPECT_EQ(t.str(t.neg(s0)), "-s0");
  EXPECT_EQ(t.str(t.mul(n(2), t.div(s0, n(2)))), "2*(s0//2)");
  EXPECT_EQ(t.str(t.div(t.mul(n(2), s0), n(3))), "2*s0//3");
  EXPECT_EQ(t.str(t.mul(t.add(s0, n(1)), s1)), "s1*(s0 + 1)");
  EXPECT_EQ(t.str(t.div(s0, t.mul(s0, s1))), "s0//(s0*s1)");
  EXPECT_EQ(t.str(t.min(s0, s1)), "min(s0, s1)");
  const ExprId f0 = t.float_symbol(0.5);
  EXPECT_EQ(t.str(t.real_op(ExprKind::FMul, t.real_op(ExprKind::FAdd, f0, t.real(1)), s0)), "(f0 + 1.0)*float(s0)");
}

TEST_F(Symbols, DecidedByFormNeedsNoRelation) {
  EXPECT_TRUE(t.equal(s0, s0));
  EXPECT_TRUE(t.less(s0, t.add(s0, n(1))));
  EXPECT_FALSE(t.less(s0, n(0)));
  EXPECT_FALSE(t.equal(t.add(s0, n(1)), n(0)));
  EXPECT_FALSE(t.less(t.add(s0, s1), s0));
  EXPECT_TRUE(t.equal(n(3), n(3)));
  EXPECT_EQ(relations(), "");
}

TEST_F(Symbols, DecidedByHintIsRecordedOnce) {
  EXPECT_FALSE(t.equal(s0, s1));
  EXPECT_FALSE(t.equal(s1, s0));
  EXPECT_TRUE(t.less(s1, s0));
  EXPECT_FALSE(t.decide(Cmp::LessEqual, s0, s1));
  EXPECT_FALSE(t.less(s0, n(4)));
  EXPECT_TRUE(t.less(n(4), s0));
  EXPECT_EQ(relations(), "s0 != s1; s1 < s0; s0 >= 4; s0 > 4");
  EXPECT_TRUE(holds({6, 5}));
  EXPECT_FALSE(holds({5, 5}));
  EXPECT_FALSE(holds({4, 3}));
}

TEST_F(Symbols, PinIsARelationWithAConstant) {
  EXPECT_EQ(t.pin(s1), 5);
  EXPECT_EQ(t.pin(n(3)), 3);
  EXPECT_EQ(relations(), "s1 == 5");
  EXPECT_TRUE(holds({99, 5}));
  EXPECT_FALSE(holds({12, 6}));
}

TEST_F(Symbols, SymIntsComputeWithPlainIntsOnEitherSide) {
  const c10::SymInt a = sym(s0), b = sym(s1);
  EXPECT_EQ(id(a + 2), t.add(s0, n(2)));
  EXPECT_EQ(id(2 + a), t.add(s0, n(2)));
  EXPECT_EQ(id(3 - a), t.sub(n(3), s0));
  EXPECT_EQ(id(a * b), t.mul(s0, s1));
  EXPECT_EQ(id(c10::SymInt(100) / a), t.div(n(100), s0));
  EXPECT_EQ(id(a / b), t.div(s0, s1));
  EXPECT_EQ(id(a % 5), t.mod(s0, n(5)));
  EXPECT_EQ(id(a.min(b)), t.min(s0, s1));
  EXPECT_EQ(id(a.max(3)), t.max(s0, n(3)));
  EXPECT_EQ(id(-a), t.neg(s0));
  EXPECT_EQ(id(a.clone()), s0);
  c10::SymInt c = a;
  c += 1;
  c *= b;
  EXPECT_EQ(id(c), t.mul(t.add(s0, n(1)), s1));
  EXPECT_EQ((a - a).maybe_as_int(), 0);
  EXPECT_EQ(relations(), "");
}

TEST_F(Symbols, SymIntsAreSymbolicUntilSomethingConcreteIsAsked) {
  const c10::SymInt a = sym(s0);
  EXPECT_TRUE(a.is_symbolic());
  EXPECT_FALSE(a.maybe_as_int().has_value());
  EXPECT_FALSE(sym(n(7)).is_heap_allocated());
  EXPECT_TRUE(a.has_hint());
  EXPECT_EQ(relations(), "");
  EXPECT_EQ(a.guard_int(__FILE__, __LINE__), 12);
  EXPECT_EQ(relations(), "s0 == 12");
}

TEST_F(Symbols, SymIntComparisonsAreGuards) {
  const c10::SymInt a = sym(s0), b = sym(s1);
  EXPECT_TRUE(a > 4);
  EXPECT_TRUE(a != b);
  EXPECT_TRUE(a == a + 0);
  EXPECT_TRUE(b <= a);
  EXPECT_TRUE(a >= 0);
  EXPECT_EQ(relations(), "s0 > 4; s0 != s1; s0 >= s1");
}

TEST_F(Symbols, TruthValuesGuardWhatExplainsThem) {
  const c10::SymInt a = sym(s0), b = sym(s1);
  EXPECT_FALSE(a.sym_eq(1).sym_or(b.sym_eq(1)).guard_bool(__FILE__, __LINE__));
  EXPECT_EQ(relations(), "s0 != 1; s1 != 1");
  EXPECT_FALSE(a.sym_gt(0).sym_and(b.sym_eq(2)).guard_or_true(__FILE__, __LINE__));
  EXPECT_EQ(relations(), "s0 != 1; s1 != 1; s1 != 2");
  EXPECT_TRUE(a.sym_lt(b).sym_not().expect_true(__FILE__, __LINE__));
  EXPECT_EQ(relations(), "s0 != 1; s1 != 1; s1 != 2; s0 >= s1");
  EXPECT_TRUE(a.sym_eq(a).maybe_as_bool().value());
  EXPECT_EQ(a.sym_gt(20).toSymInt().maybe_as_int(), 0);
}

TEST_F(Symbols, FloatsKeepTheProgramsOwnRounding) {
  const ExprId f0 = t.float_symbol(0.1);
  const c10::SymFloat f = t.make_symfloat(f0);
  const c10::SymFloat r = (f + 0.2) * f / 3.0 - 1.0;
  const ExprId e = t.expr_of(r);
  EXPECT_EQ(t.real_hint(e), (0.1 + 0.2) * 0.1 / 3.0 - 1.0);
  Env env;
  ASSERT_TRUE(Evaluator(t, {e}).evaluate({{12, 5}, {0.7}}, env));
  EXPECT_EQ(env.real(e), (0.7 + 0.2) * 0.7 / 3.0 - 1.0);
  EXPECT_EQ(relations(), "");
}

TEST_F(Symbols, IntegersBecomeFloats) {
  const c10::SymFloat mean = c10::SymFloat(1.0) / c10::SymFloat(sym(s0));
  const ExprId e = t.expr_of(mean);
  EXPECT_EQ(t.str(e), "1.0/float(s0)");
  Env env;
  ASSERT_TRUE(Evaluator(t, {e}).evaluate({{3, 5}, {}}, env));
  EXPECT_EQ(env.real(e), 1.0 / 3.0);
  const ExprId back = t.floor(t.real_op(ExprKind::FDiv, s0, n(5)));
  EXPECT_EQ(t.hint(back), 2);
  EXPECT_EQ(at(back, {26, 5}), 5);
  EXPECT_EQ(at(t.ceil(t.real_op(ExprKind::FDiv, s0, n(5))), {26, 5}), 6);
}

TEST_F(Symbols, FloatGuardsCompareBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const ExprId f0 = t.float_symbol(0.0), f1 = t.float_symbol(nan);
  EXPECT_EQ(t.make_symfloat(f0).guard_float(__FILE__, __LINE__), 0.0);
  EXPECT_TRUE(std::isnan(t.make_symfloat(f1).guard_float(__FILE__, __LINE__)));
  EXPECT_EQ(relations(), "f0 is 0.0; f1 is nan");
  EXPECT_TRUE(holds({12, 5}, {0.0, nan}));
  EXPECT_FALSE(holds({12, 5}, {-0.0, nan}));
  EXPECT_FALSE(holds({12, 5}, {0.0, 1.0}));
}

TEST_F(Symbols, FloatComparisonsAreGuards) {
  const c10::SymFloat f = t.make_symfloat(t.float_symbol(2.0));
  EXPECT_TRUE(f > 1.0);
  EXPECT_FALSE(f == 1.0);
  EXPECT_TRUE(f >= 2.0);
  EXPECT_EQ(relations(), "f0 > 1.0; f0 != 1.0; f0 >= 2.0");
  EXPECT_TRUE(holds({12, 5}, {3.0}));
  EXPECT_FALSE(holds({12, 5}, {std::numeric_limits<double>::quiet_NaN()}));
}

TEST_F(Symbols, ContiguityIsAskedThroughLibTorchsOwnAlgorithm) {
  const c10::SymNode base = sym(s0).toSymNode();
  const c10::SymNode one = base->wrap_int(1);
  const c10::SymNode a = base, b = sym(s1).toSymNode();
  EXPECT_TRUE(base->is_contiguous({a, b}, {b, one})->guard_bool("", 0));
  EXPECT_EQ(relations(), "s0*s1 != 0; s1 != 1; s0 != 1");
  EXPECT_FALSE(base->is_contiguous({a, b}, {one, a})->guard_bool("", 0));
  EXPECT_TRUE(base->is_non_overlapping_and_dense({a, b}, {one, a})->guard_bool("", 0));
}

TEST_F(Symbols, DivisionByZeroAtNewValuesFailsTheVariantQuietly) {
  const ExprId rows = t.div(t.add(s0, n(1)), s1);
  t.pin(rows);
  Env env;
  EXPECT_TRUE(holds({12, 5}));
  EXPECT_FALSE(holds({12, 0}));
  EXPECT_FALSE(Evaluator(t, {rows}).evaluate({{12, 0}, {}}, env));
  EXPECT_THROW(t.div(s0, n(0)), std::domain_error);
}

TEST_F(Symbols, EvaluatorRefusesWhatIsNoBinding) {
  Env env;
  const Evaluator all(t);
  EXPECT_TRUE(all.evaluate({{1, 2}, {}}, env));
  EXPECT_FALSE(all.evaluate({{1}, {}}, env));
  EXPECT_FALSE(all.evaluate({{1, 2}, {0.5}}, env));
  EXPECT_FALSE(all.evaluate({{1, -2}, {}}, env));
}

TEST_F(Symbols, EvaluatorComputesOnlyWhatIsNeeded) {
  const ExprId risky = t.div(s0, s1), fine = t.mul(s0, s1);
  Env env;
  EXPECT_TRUE(Evaluator(t, {fine}).evaluate({{3, 0}, {}}, env));
  EXPECT_EQ(env.integer(fine), 0);
  EXPECT_FALSE(Evaluator(t, {risky}).evaluate({{3, 0}, {}}, env));
}

TEST_F(Symbols, UnbackedOnesAreBoundInTheirOrder) {
  const ExprId u0 = t.unbacked_symbol(7), both = t.add(s0, u0), u1 = t.unbacked_symbol(3), product = t.mul(both, u1);
  EXPECT_EQ(t.bound_by(s0), 0U);
  EXPECT_EQ(t.bound_by(both), 1U);
  EXPECT_EQ(t.bound_by(product), 2U);
  EXPECT_EQ(t.str(product), "(s0 + u0)*u1");
  t.decide(Cmp::LessEqual, n(2), u1);
  t.decide(Cmp::Less, u0, s0);
  t.allow_unguarded_reads(true);
  t.pin(both);  // told, and a relation all the same
  const Evaluator evaluator(t);
  const int64_t sum = t.hint(both), first = t.hint(s0), second = t.hint(s1);
  Env env;
  ASSERT_TRUE(evaluator.evaluate({{first, second}, {}}, env));
  EXPECT_TRUE(evaluator.relations_hold(env));
  ASSERT_TRUE(evaluator.evaluate({{first, second, 7}, {}}, env));
  EXPECT_EQ(env.integer(both), sum);
  EXPECT_TRUE(evaluator.relations_hold(env));
  ASSERT_TRUE(evaluator.evaluate({{first, second, 6}, {}}, env));
  EXPECT_FALSE(evaluator.relations_hold(env));
  ASSERT_TRUE(evaluator.evaluate({{first, second, 7, 2}, {}}, env));
  EXPECT_EQ(env.integer(product), sum * 2);
  EXPECT_TRUE(evaluator.relations_hold(env));
  ASSERT_TRUE(evaluator.evaluate({{first, second, 7, 1}, {}}, env));
  EXPECT_FALSE(evaluator.relations_hold(env));
  EXPECT_FALSE(evaluator.evaluate({{first}, {}}, env));
  EXPECT_FALSE(evaluator.evaluate({{first, second, 7, 2, 1}, {}}, env));
  EXPECT_FALSE(evaluator.evaluate({{first, second, -1}, {}}, env));
  EXPECT_THROW(t.size_symbol(3), std::logic_error);
}

TEST_F(Symbols, ScalarsAndConstantsHaveExpressions) {
  EXPECT_EQ(t.expr_of(c10::Scalar(4)), n(4));
  EXPECT_EQ(t.expr_of(c10::Scalar(0.5)), t.real(0.5));
  EXPECT_EQ(t.expr_of(c10::Scalar(true)), n(1));
  EXPECT_EQ(t.expr_of(c10::Scalar(sym(s0))), s0);
  EXPECT_EQ(t.expr_of(c10::Scalar(t.make_symfloat(t.to_real(s0)))), t.to_real(s0));
  const int64_t low = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(t.expr_of(c10::SymInt(low)), n(low));  // LibTorch keeps it on the heap
  EXPECT_EQ(t.hint(t.div(n(low), n(-1))), low);
  EXPECT_THROW(t.expr_of(c10::Scalar(c10::complex<double>(1, 2))), std::logic_error);
  EXPECT_THROW(SymbolTable::make()->expr_of(sym(s0)), std::logic_error);
}

TEST_F(Symbols, SquareRootOfASymbolicFloat) {
  const c10::SymFloat root = t.make_symfloat(t.float_symbol(4.0)).sqrt();
  EXPECT_EQ(t.real_hint(t.expr_of(root)), 2.0) << t.str(t.expr_of(root));
}

TEST_F(Symbols, ALongSumStaysOneForm) {
  ExprId sum = n(0);
  std::vector<ExprId> symbols;
  for (int i = 0; i < 1000; ++i) sum = t.add(sum, symbols.emplace_back(t.size_symbol(i)));
  for (int i = 999; i > 0; --i) sum = t.sub(sum, symbols[static_cast<size_t>(i)]);
  EXPECT_EQ(sum, symbols[0]);
}

}  // namespace
}  // namespace hindcast::capture
