#include "tests/aot/aot_grads.h"

#include <optional>

namespace hindcast::tests {
namespace {

void expect_same(const at::Tensor& given, const at::Tensor& expected, const std::string& where, bool to_the_bit, AotTolerance tolerance) {
  ASSERT_EQ(given.defined(), expected.defined()) << where;
  if (!given.defined()) return;
  ASSERT_EQ(given.scalar_type(), expected.scalar_type()) << where;
  ASSERT_EQ(given.sizes(), expected.sizes()) << where;
  if (given.numel() == 0) return;
  if (to_the_bit) {
    EXPECT_TRUE(at::allclose(given, expected, 0, 0, /*equal_nan=*/true)) << where << "\n" << given << "\n" << expected;
    return;
  }
  const at::Tensor a = at::view_as_real(given.to(at::kComplexDouble)), b = at::view_as_real(expected.to(at::kComplexDouble));
  EXPECT_TRUE(a.isnan().equal(b.isnan())) << where;
  const double scale = b.abs().nan_to_num(0, 0, 0).max().item<double>(), error = (a - b).abs().nan_to_num(0, 0, 0).max().item<double>();
  const double unit = given.scalar_type() == at::kHalf ? 1e-3 / 1e-7 : given.scalar_type() == at::kBFloat16 ? 8e-3 / 1e-7 : 1;
  EXPECT_LE(error, tolerance.relative * unit * scale) << where;
}

void run(const AotCase& of, AotOptions options, bool to_the_bit, bool is_guarded, AotTolerance tolerance, const std::string& where) {
  options.async = false;
  const auto compiled = aot_function([&](Tensors inputs) { return of.function(std::move(inputs)); }, options);
  std::optional<Guard> guard;
  for (int call = 0; call < 3; ++call) {
    const Outcome expected = outcome_of(of, of.function, 7);
    if (is_guarded) {
      Options engine;
      engine.compiler = to_the_bit ? compilers::eager() : compilers::fused();
      engine.async = false;
      guard.emplace(enable(engine));
    }
    const Outcome given = outcome_of(of, compiled, 7);
    guard.reset();
    expect_same(given, expected, of.name + ", " + where + ", call " + std::to_string(call), to_the_bit || call == 0, tolerance);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(compiled.stats().hits, of.is_eager ? 0 : 2) << of.name << ", " << where;
  EXPECT_EQ(compiled.stats().run_again, 0U) << of.name << ", " << where;
}

}  // namespace

void expect_same(const Outcome& given, const Outcome& expected, const std::string& where, bool to_the_bit, AotTolerance tolerance) {
  ASSERT_EQ(given.results.size(), expected.results.size()) << where;
  for (size_t i = 0; i < given.results.size(); ++i)
    expect_same(given.results[i], expected.results[i], where + ", result " + std::to_string(i), to_the_bit, tolerance);
  for (size_t i = 0; i < given.gradients.size(); ++i)
    expect_same(given.gradients[i], expected.gradients[i], where + ", gradient " + std::to_string(i), to_the_bit, tolerance);
}

void expect_like_eager(const AotCase& of, AotTolerance tolerance) {
  for (const bool is_min_cut : {false, true}) {
    AotOptions options;
    options.partition = is_min_cut ? partition::min_cut : partition::standard;
    const std::string where = is_min_cut ? "min-cut" : "standard";
    for (const bool is_guarded : {false, true}) {
      AotOptions through_aten = options;
      through_aten.fw_compiler = through_aten.bw_compiler = compilers::eager();
      const std::string guarded = is_guarded ? ", guarded" : "";
      run(of, through_aten, true, is_guarded, tolerance, where + " through ATen" + guarded);
      options.fallback_random = true;
      run(of, options, false, is_guarded, tolerance, where + guarded);
    }
  }
}

}  // namespace hindcast::tests
