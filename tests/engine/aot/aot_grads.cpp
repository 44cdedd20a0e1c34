#include "tests/engine/aot/aot_grads.h"

#include <optional>

namespace hindcast::tests {
namespace {

at::Tensor wide(const at::Tensor& tensor) { return at::view_as_real(tensor.to(at::kComplexDouble)); }
double largest(const at::Tensor& tensor) { return tensor.abs().nan_to_num(0, 0, 0).max().item<double>(); }

void expect_same_bits(const at::Tensor& given, const at::Tensor& expected, const std::string& where) {
  EXPECT_TRUE(at::allclose(given, expected, 0, 0, /*equal_nan=*/true)) << where << "\n" << given << "\n" << expected;
}

// `exact`: the float64 result; undefined where none exists.
void expect_near(const at::Tensor& given, const at::Tensor& expected, const at::Tensor& exact, const std::string& where) {
  const at::Tensor a = wide(given), b = wide(expected);
  EXPECT_TRUE(a.isnan().equal(b.isnan())) << where;
  const double unit = given.scalar_type() == at::kHalf ? 1e4 : given.scalar_type() == at::kBFloat16 ? 8e4 : 1;
  const double rounding = kRounding * unit * largest(b);
  if (!exact.defined() || exact.sizes() != expected.sizes()) {
    EXPECT_LE(largest(a - b), 2 * rounding) << where;
    return;
  }
  const at::Tensor truth = wide(exact);
  EXPECT_LE(largest(a - truth), 2 * largest(b - truth) + rounding) << where;
}

void expect_same(const Tensors& given, const Tensors& expected, const Tensors* exact, const std::string& where, bool bitwise) {
  ASSERT_EQ(given.size(), expected.size()) << where;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string which = where + " " + std::to_string(i);
    ASSERT_EQ(given[i].defined(), expected[i].defined()) << which;
    if (!given[i].defined()) continue;
    ASSERT_EQ(given[i].scalar_type(), expected[i].scalar_type()) << which;
    ASSERT_EQ(given[i].sizes(), expected[i].sizes()) << which;
    if (given[i].numel() == 0) continue;
    if (bitwise) {
      expect_same_bits(given[i], expected[i], which);
    } else {
      expect_near(given[i], expected[i], exact != nullptr ? exact->at(i) : at::Tensor(), which);
    }
  }
}

void run(const AotCase& of, AotOptions options, bool bitwise, bool is_guarded, const std::string& where) {
  options.async = false;
  options.fallback_random = true;  // eager's bits are expected
  options.fw_compiler = options.bw_compiler = bitwise ? compilers::eager() : compilers::fused();
  const auto compiled = aot_function([&](Tensors inputs) { return of.function(std::move(inputs)); }, options);
  std::optional<Guard> guard;
  for (int call = 0; call < 3; ++call) {
    const Outcome expected = outcome_of(of, of.function, 7);
    std::optional<Outcome> exact;
    if (!of.has_no_float64) exact = outcome_of(of, of.function, 7, /*in_double=*/true);
    if (is_guarded) {
      Options engine;
      engine.compiler = bitwise ? compilers::eager() : compilers::fused();
      engine.async = false;
      guard.emplace(enable(engine));
    }
    const Outcome given = outcome_of(of, compiled, 7);
    guard.reset();
    const std::string which = of.name + ", " + where + ", call " + std::to_string(call);
    const bool has_bits = bitwise || (call == 0 && !is_guarded);
    expect_same(given.results, expected.results, exact ? &exact->results : nullptr, which + ", result", has_bits);
    expect_same(given.gradients, expected.gradients, exact ? &exact->gradients : nullptr, which + ", gradient", has_bits);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(compiled.stats().hits, of.is_eager ? 0 : 2) << of.name << ", " << where;
}

}  // namespace

void expect_like_eager(const AotCase& of) {
  for (const bool is_min_cut : {false, true}) {
    AotOptions options;
    options.partition = is_min_cut ? partition::min_cut : partition::standard;
    const std::string where = is_min_cut ? "min-cut" : "standard";
    for (const bool is_guarded : {false, true}) {
      const std::string guarded = is_guarded ? ", guarded" : "";
      run(of, options, true, is_guarded, where + " through ATen" + guarded);
      run(of, options, false, is_guarded, where + guarded);
    }
  }
}

}  // namespace hindcast::tests
