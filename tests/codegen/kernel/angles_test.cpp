// sin, cos and tan inside kernels.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codegen/cpu/kernels.h"
#include "codegen/cpu/source.h"
#include "codegen/device/ops.h"
#include "tests/codegen/cpu/near_grads.h"

namespace hindcast::tests {
namespace {

// In one tensor, as a kernel has a form for angles near 0: blocks that are near in float and double, near only in double, and far.
TEST(Angles, NearAndFar) {
  for (const double size : {1e2, 1e6, 1e30}) {
    for (const double one : {0.0, 6e4, 1e5, 2e9, 1e20, double{INFINITY}, std::nan("")}) {
      SCOPED_TRACE(testing::Message() << size << ", one of " << one);
      expect_near_grads([&](at::TensorOptions options) {
        auto angles = at::randn({3, 1700}).mul(size);
        angles.select(1, 1500).fill_(one);
        const auto x = angles.to(at::kFloat).to(options.dtype()).set_requires_grad(true), bias = near_leaf({1700}, options);
        (x.sin() * x.cos() * 2 + bias.cos()).sum().backward();
        return std::vector{x.grad(), bias.grad()};
      });
    }
  }
}

// Each gradient element by element, since a sum over angles of all exponents would hide the small ones.
TEST(Angles, EveryExponentOfDoubles) {
  const auto gradient = [] {
    at::manual_seed(3);
    const auto exponents = at::arange(-1074, 1024, at::kDouble).repeat({8});
    const auto x = at::ldexp(at::rand({exponents.numel()}, at::kDouble).add(1), exponents).set_requires_grad(true);
    x.sin().mul(2).sum().backward();
    return x.grad();
  };
  hindcast::reset();
  const auto stock = gradient();
  const auto guard = hindcast::enable(fused_options());
  const auto ours = gradient();
  EXPECT_EQ(hindcast::stats().fused_graphs, 1U);
  EXPECT_LE((ours - stock).abs().div(stock.abs()).max().item<double>(), 4 * std::numeric_limits<double>::epsilon());
}

// Operands whose layouts differ from the result's.
TEST(Angles, OverStrides) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = at::randn({40, 30}).mul(1e11).to(options.dtype()).set_requires_grad(true), y = near_leaf({30, 80}, options);
    (x.t().sin() * y.slice(1, 0, 80, 2)).tan().mul(0.5).sum().backward();
    return std::vector{x.grad(), y.grad()};
  });
}

// Angles of known size, times an integer per row.
TEST(Angles, TimesIntegers) {
  for (const at::ScalarType type : {at::kInt, at::kLong, at::kByte, at::kBool}) {
    SCOPED_TRACE(c10::toString(type));
    hindcast::reset();
    const uint64_t before = hindcast::stats().compiler_failures;
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = near_leaf({20, 33}, options), numbers = at::arange(20, type == at::kBool ? at::kLong : type).unsqueeze(1);
      (x.tanh() * (type == at::kBool ? numbers > 4 : numbers)).sin().sum().backward();
      return std::vector{x.grad()};
    });
    EXPECT_EQ(hindcast::stats().compiler_failures, before);
  }
}

TEST(Angles, OverRows) {
  for (const double size : {1.0, 1e11}) {
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = at::randn({6, 50}).mul(size).to(options.dtype()).set_requires_grad(true), y = near_leaf({6, 50}, options);
      (at::softmax(x.sin(), 1) * y.tanh()).sum().backward();
      return std::vector{x.grad(), y.grad()};
    });
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Angles that a kernel computes itself: hand-built bodies, all results of which are stored

using codegen::AccessPattern;
using codegen::Body;
using codegen::BodyOp;
using codegen::Operand;

Operand load(uint32_t i) { return {Operand::Kind::Load, i}; }
Operand scalar(uint32_t i) { return {Operand::Kind::Scalar, i}; }
Operand result(uint32_t i) { return {Operand::Kind::Result, i}; }

/// Stores every op's result.
Body body_of(at::ScalarType type, std::vector<AccessPattern> loads, std::vector<BodyOp> ops, uint32_t scalars = 0) {
  Body body;
  body.compute = type;
  for (const AccessPattern pattern : loads) body.loads.push_back({type, pattern});
  body.scalars = scalars;
  body.ops = std::move(ops);
  for (uint32_t i = 0; i < body.ops.size(); ++i) body.stores.push_back({result(i), type});
  return body;
}

/// cos(cos(a + b + c + d)), and sin and tan of the sum.
Body chain(at::ScalarType type) {
  return body_of(type, {AccessPattern::Dense, AccessPattern::Dense, AccessPattern::Dense, AccessPattern::Broadcast},
                 {{"add", {load(0), load(1)}},
                  {"add", {result(0), load(2)}},
                  {"add", {result(1), load(3)}},
                  {"cos", {result(2)}},
                  {"cos", {result(3)}},
                  {"sin", {result(2)}},
                  {"tan", {result(2)}}});
}

std::shared_ptr<const codegen::cpu::CpuKernel> kernel_of(const Body& body) {
  std::string why_not;
  auto kernel = codegen::cpu::kernel_of(body, why_not);
  EXPECT_NE(kernel, nullptr) << why_not;
  return kernel;
}

template <class T>
using Columns = std::vector<std::vector<T>>;

template <class T>
constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;

/// Small numbers, different ones per operand.
template <class T>
Columns<T> small_operands(size_t loads, size_t count) {
  Columns<T> operands(loads, std::vector<T>(count));
  for (size_t n = 0; n < loads; ++n) {
    for (size_t i = 0; i < count; ++i) operands[n][i] = static_cast<T>(std::sin(static_cast<double>(i * (n + 3))) * 7);
  }
  return operands;
}

template <class T>
std::vector<char*> pointers_to(Columns<T>& columns) {
  std::vector<char*> pointers;
  for (std::vector<T>& column : columns) pointers.push_back(reinterpret_cast<char*>(column.data()));
  return pointers;
}

/// By op.
template <class T>
Columns<T> run_dense(const Body& body, Columns<T> operands, std::vector<double> scalars = {}) {
  const size_t count = operands[0].size();
  Columns<T> results(body.stores.size(), std::vector<T>(count));
  std::vector<char*> pointers = pointers_to(operands);
  for (char* one : pointers_to(results)) pointers.push_back(one);
  kernel_of(body)->dense({pointers.data(), scalars.data(), static_cast<long>(count)});
  return results;
}

/// sin, cos and tan of the angle that the kernel stores: off by 2 units at most.
template <class T>
void expect_exact(std::string_view function, const std::vector<T>& angles, const std::vector<T>& results) {
  for (size_t i = 0; i < angles.size(); ++i) {
    const auto angle = static_cast<long double>(angles[i]);
    const long double exact = function == "sin" ? std::sin(angle) : function == "cos" ? std::cos(angle) : std::tan(angle);
    const bool is_near = std::isfinite(angles[i]) ? std::abs(static_cast<long double>(results[i]) - exact) <=
                                                        2 * std::numeric_limits<T>::epsilon() * std::abs(exact)
                                                  : std::isnan(results[i]);
    ASSERT_TRUE(is_near) << function << " of " << angles[i] << " at " << i << ": " << results[i] << ", not " << exact;
  }
}

template <class T>
void expect_exact(const Body& body, const Columns<T>& results) {
  for (size_t i = 0; i < body.ops.size(); ++i) {
    const BodyOp& op = body.ops[i];
    if (op.function == "sin" || op.function == "cos" || op.function == "tan")
      expect_exact(op.function, results.at(op.args[0].index), results.at(i));
  }
}

const std::vector<double> kFar = {6e4, 7e4, -1e6, 1e12, -1e30, double{INFINITY}, -double{INFINITY}, std::nan("")};

template <class T>
class ComputedAngles : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(ComputedAngles, Floats);

TYPED_TEST(ComputedAngles, NearAndFarAtTheBordersOfBlocks) {
  const Body body = chain(kType<TypeParam>);
  for (const size_t count : {1, 2, 37, 255, 256, 257, 511, 512, 513, 1024, 1500}) {
    expect_exact(body, run_dense(body, small_operands<TypeParam>(4, count)));
    size_t n = 0;
    for (const size_t place : {0, 1, 255, 256, 257, 511, 512, 767, 768, 1023, 1024, 1499}) {
      if (place >= count) continue;
      auto operands = small_operands<TypeParam>(4, count);
      operands[place % 3][place] = static_cast<TypeParam>(kFar[n++ % kFar.size()]);
      SCOPED_TRACE(testing::Message() << operands[place % 3][place] << " at " << place << " of " << count);
      expect_exact(body, run_dense(body, operands));
    }
  }
}

TYPED_TEST(ComputedAngles, AllKindsOfThemInOneBlock) {
  const Body body = chain(kType<TypeParam>);
  auto operands = small_operands<TypeParam>(4, 700);
  for (size_t i = 0; i < 700; i += 3) operands[1][i] = static_cast<TypeParam>(kFar[i % kFar.size()]);
  expect_exact(body, run_dense(body, operands));
  operands[3][0] = 1e25;  // the broadcast one
  expect_exact(body, run_dense(body, operands));
}

// The device library's bits: a block with one far angle uses the far form for all of them, other blocks the near one.
TYPED_TEST(ComputedAngles, OneFarAngleIsABlocksMatter) {
  const Body body = chain(kType<TypeParam>);
  auto operands = small_operands<TypeParam>(4, 1000);
  operands[2][300] = 1e12;
  const auto results = run_dense(body, operands);
  for (size_t i = 0; i < 1000; ++i) {
    const TypeParam angle = results[2][i];
    const bool far = 256 <= i && i < 512;
    EXPECT_EQ(results[3][i], far ? device::cos(angle) : device::cos_near(angle)) << i;
    EXPECT_EQ(results[5][i], far ? device::sin(angle) : device::sin_near(angle)) << i;
    EXPECT_EQ(results[4][i], device::cos_near(results[3][i])) << i;  // a cosine is always near
  }
}

TYPED_TEST(ComputedAngles, OfAnAngleThatIsFar) {
  // cos(1e10 sin(1e10 x) + y), and the cosine of the load itself.
  const Body body = body_of(kType<TypeParam>, {AccessPattern::Dense, AccessPattern::Dense},
                            {{"mul", {load(0), scalar(0)}},
                             {"sin", {result(0)}},
                             {"mul", {result(1), scalar(0)}},
                             {"add", {result(2), load(1)}},
                             {"cos", {result(3)}},
                             {"cos", {load(0)}}},
                            1);
  for (const double factor : {1.0, 1e3, 1e5, 1e10}) {
    for (const double one : kFar) {
      SCOPED_TRACE(testing::Message() << factor << ", one of " << one);
      auto operands = small_operands<TypeParam>(2, 900);
      operands[0][520] = static_cast<TypeParam>(one);
      const auto results = run_dense(body, operands, {factor});
      expect_exact("sin", results[0], results[1]);
      expect_exact("cos", results[3], results[4]);
      expect_exact("cos", operands[0], results[5]);
    }
  }
}

TYPED_TEST(ComputedAngles, OfWhatIsBounded) {
  // cos(s0 tanh(x) + s1), where only the bound decides.
  const Body body = body_of(kType<TypeParam>, {AccessPattern::Dense},
                            {{"tanh", {load(0)}},
                             {"mul", {scalar(0), result(0)}},
                             {"add", {result(1), scalar(1)}},
                             {"cos", {result(2)}},
                             {"mul", {result(3), result(0)}},
                             {"sin", {result(4)}}},
                            2);
  EXPECT_NE(codegen::cpu::source_of(body).find("far |= !((magnitude_of(s0) * 1.0 + magnitude_of(s1)) <= 0.99"), std::string::npos);
  auto operands = small_operands<TypeParam>(1, 1100);
  for (size_t i = 0; i < kFar.size(); ++i) operands[0][i * 100] = static_cast<TypeParam>(kFar[i]);
  for (const double factor : {3.0, -6.5e4, 1e12, double{INFINITY}, std::nan("")}) {
    for (const double added : {0.0, 1e3, 1e9, -double{INFINITY}}) {
      SCOPED_TRACE(testing::Message() << factor << " and " << added);
      expect_exact(body, run_dense(body, operands, {factor, added}));
    }
  }
}

TYPED_TEST(ComputedAngles, WrittenOverAnOperand) {
  Body body = chain(kType<TypeParam>);
  body.stores = {{result(4), kType<TypeParam>}};
  auto operands = small_operands<TypeParam>(4, 1400);
  operands[1][600] = 1e12;
  const auto expected = run_dense(body, operands);
  std::vector<char*> pointers = pointers_to(operands);
  pointers.push_back(pointers[1]);
  kernel_of(body)->dense({pointers.data(), nullptr, 1400});
  EXPECT_EQ(operands[1], expected[0]);
}

TYPED_TEST(ComputedAngles, AddedToALeaf) {
  Body body = chain(kType<TypeParam>);
  body.stores = {{result(4), kType<TypeParam>}};
  auto operands = small_operands<TypeParam>(4, 1400);
  operands[1][600] = 1e12;
  const auto expected = run_dense(body, operands);
  body.stores[0].leaves = 1;
  // The result is written to a block that nobody reads.
  Columns<TypeParam> written = {std::vector<TypeParam>(codegen::cpu::kBlockLength), std::vector<TypeParam>(1400, 2)};
  std::vector<char*> pointers = pointers_to(operands);
  for (char* one : pointers_to(written)) pointers.push_back(one);
  pointers.push_back(pointers.back());  // the leaf adds to its own value
  const std::vector<long> is_block = {1, 0, 0};
  kernel_of(body)->leaves({pointers.data(), nullptr, 1400, is_block.data()});
  for (size_t i = 0; i < 1400; ++i) EXPECT_EQ(written[1][i], 2 + expected[0][i]) << i;
}

TYPED_TEST(ComputedAngles, OverRows) {
  // Two passes: sin(x + y - z) and its sum s over the row; then cos(s0 s (x + y - z)), far only because of s0. z is a number per segment.
  constexpr at::ScalarType type = kType<TypeParam>;
  constexpr size_t rows = 3, segments = 2, columns = 1300, row = segments * columns;
  Body body = body_of(type, {AccessPattern::Dense, AccessPattern::Dense, AccessPattern::PerSegment},
                      {{"neg", {load(2)}},
                       {"add", {load(0), load(1)}},
                       {"add", {result(1), result(0)}},
                       {"sin", {result(2)}},
                       {"sum", {result(3)}, BodyOp::Kind::Reduction, {codegen::Reduction::Kind::Sum, codegen::Reduction::Over::Row}},
                       {"mul", {result(2), result(4)}},
                       {"mul", {result(5), scalar(0)}},
                       {"cos", {result(6)}},
                       {"tan", {result(7)}}},
                      1);
  body.by_rows = true;
  body.stores = {{result(2), type}, {result(3), type}, {result(6), type}, {result(7), type}, {result(8), type}};
  const auto kernel = kernel_of(body);
  constexpr long width = sizeof(TypeParam);
  const std::vector<long> row_strides = {row * width, row * width, segments * width, row * width,
                                         row * width, row * width, row * width,      row * width};
  const std::vector<long> segment_strides = {columns * width, columns * width, width,           columns * width,
                                             columns * width, columns * width, columns * width, columns * width};
  size_t place = 0;
  for (const double one : kFar) {
    const double factor = place % 2 == 0 ? 1e10 : 1;
    SCOPED_TRACE(testing::Message() << one << " and " << factor);
    auto operands = small_operands<TypeParam>(3, rows * row);
    operands[place % 2][place % (rows * row)] = static_cast<TypeParam>(one);
    place += 1023;
    Columns<TypeParam> results(5, std::vector<TypeParam>(rows * row));
    std::vector<TypeParam> kept(codegen::cpu::row_scratch(body) * row);
    std::vector<char*> pointers = pointers_to(operands);
    for (char* result : pointers_to(results)) pointers.push_back(result);
    kernel->rows({.pointers = pointers.data(),
                  .scalars = &factor,
                  .rows = rows,
                  .row_strides = row_strides.data(),
                  .segments = segments,
                  .segment_strides = segment_strides.data(),
                  .columns = columns,
                  .kept = reinterpret_cast<char*>(kept.data())});
    expect_exact("sin", results[0], results[1]);
    expect_exact("cos", results[2], results[3]);
    expect_exact("tan", results[3], results[4]);
  }
}

// Angles that are known to be near are not checked.
TEST(ComputedAnglesText, OfWhatIsNearIsOneLoop) {
  for (const char* function : {"sin", "cos", "tanh", "sigmoid", "erf", "erfc", "atan", "acos"}) {
    Body body = body_of(at::kFloat, {AccessPattern::Dense},
                        {{function, {load(0)}}, {"neg", {result(0)}}, {"square", {result(1)}}, {"cos", {result(2)}}});
    if (std::string_view(function) == "sin" || std::string_view(function) == "cos") body.ops[0].args = {scalar(0)};
    body.scalars = 1;
    const std::string text = codegen::cpu::source_of(body);
    EXPECT_EQ(text.find("far"), std::string::npos) << text;
    EXPECT_NE(text.find("v3 = cos_near<float>(v2)"), std::string::npos) << text;
  }
}

TEST(ComputedAnglesText, AreComputedTwice) {
  Body body = body_of(at::kFloat, {AccessPattern::Dense, AccessPattern::Dense, AccessPattern::Dense},
                      {{"add", {load(0), load(1)}}, {"cos", {result(0)}}, {"mul", {result(1), load(2)}}});
  body.stores = {{result(2)}};
  EXPECT_EQ(codegen::cpu::source_of(body), R"(#include "codegen/device/skeletons/cpu/dense.h"
using namespace hindcast::device;
using namespace hindcast::device::cpu;

struct Body {
  using Compute = float;
  using Real = float;
  using Loads = Types<Load<float>, Load<float>, Load<float>>;
  using Stores = Types<Store<float>>;
  static constexpr int kScalars = 0;
  struct Row {
  };
  template <class At>
  static HC_DEVICE_MEMBER void begin(Row& row, const At& at) {
  }
  template <class At>
  static HC_DEVICE_MEMBER void element(const Row& row, const At& at) {
    const float x0 = at.load(Index<0>());
    const float x1 = at.load(Index<1>());
    const float x2 = at.load(Index<2>());
    const float v0 = add<float>(x0, x1);
    const float v1 = At::kNear ? cos_near<float>(v0) : cos<float>(v0);
    const float v2 = mul<float>(v1, x2);
    at.store(Index<0>(), v2);
  }
  static constexpr AnglesToCheck kAnglesToCheck = AnglesToCheck::Computed;
  template <class At>
  static HC_DEVICE_MEMBER int far_before(const Row& row, const At& at) {
    int far = 0;
    return far;
  }
  template <class At>
  static HC_DEVICE_MEMBER int far(const Row& row, const At& at) {
    int far = 0;
    const float x0 = at.load(Index<0>());
    const float x1 = at.load(Index<1>());
    const float v0 = add<float>(x0, x1);
    far |= !(magnitude_of(v0) <= kNearAngle<float>);
    return far;
  }
};

extern "C" void dense(const LoopArguments& arguments) { run_dense<Body>(arguments); }
)");
}

// A load is available: reading it twice costs nothing.
TEST(ComputedAnglesText, OfLoadsAreOnlyLoaded) {
  Body body = body_of(at::kFloat, {AccessPattern::Dense, AccessPattern::Broadcast},
                      {{"cos", {load(0)}}, {"sin", {load(1)}}, {"mul", {result(0), result(1)}}});
  body.stores = {{result(2)}};
  EXPECT_EQ(codegen::cpu::source_of(body), R"(#include "codegen/device/skeletons/cpu/dense.h"
using namespace hindcast::device;
using namespace hindcast::device::cpu;

struct Body {
  using Compute = float;
  using Real = float;
  using Loads = Types<Load<float>, Load<float, Along::Broadcast>>;
  using Stores = Types<Store<float>>;
  static constexpr int kScalars = 0;
  struct Row {
    float x1;
  };
  template <class At>
  static HC_DEVICE_MEMBER void begin(Row& row, const At& at) {
    const float x1 = at.load(Index<1>());
    row.x1 = x1;
  }
  template <class At>
  static HC_DEVICE_MEMBER void element(const Row& row, const At& at) {
    const auto x1 = row.x1;
    const float x0 = at.load(Index<0>());
    const float v0 = At::kNear ? cos_near<float>(x0) : cos<float>(x0);
    const float v1 = At::kNear ? sin_near<float>(x1) : sin<float>(x1);
    const float v2 = mul<float>(v0, v1);
    at.store(Index<0>(), v2);
  }
  static constexpr AnglesToCheck kAnglesToCheck = AnglesToCheck::Loaded;
  template <class At>
  static HC_DEVICE_MEMBER int far_before(const Row& row, const At& at) {
    const auto x1 = row.x1;
    int far = 0;
    far |= !(magnitude_of(x1) <= kNearAngle<float>);
    return far;
  }
  template <class At>
  static HC_DEVICE_MEMBER int far(const Row& row, const At& at) {
    int far = 0;
    const float x0 = at.load(Index<0>());
    far |= !(magnitude_of(x0) <= kNearAngle<float>);
    return far;
  }
};

extern "C" void dense(const LoopArguments& arguments) { run_dense<Body>(arguments); }
)");
}

}  // namespace
}  // namespace hindcast::tests
