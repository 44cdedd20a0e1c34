// Kernels of complex numbers, compared with the stock engine and complex128.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/calls_left.h"

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr c10::complex<double> kI(0, 1);

at::Tensor complex_values(at::IntArrayRef sizes, at::TensorOptions options) {
  return at::randn(sizes, at::kComplexDouble).to(c10::toComplexType(c10::typeMetaToScalarType(options.dtype())));
}
at::Tensor complex_leaf(at::IntArrayRef sizes, at::TensorOptions options) { return complex_values(sizes, options).set_requires_grad(true); }

/// Starts from a complex gradient.
void go_back(const at::Tensor& result, at::TensorOptions options) { result.backward(complex_values(result.sizes(), options)); }

void chain_of_products(at::IntArrayRef sizes, at::TensorOptions options, Tensors& grads) {
  const auto x = complex_leaf(sizes, options), y = complex_leaf(sizes, options), z = complex_leaf(sizes, options);
  const auto product = (x * y - z * c10::complex<double>(0.5, -2)) * 1.5;
  go_back(-product / (y + kI) + (x * z.conj()).reciprocal() - x, options);
  grads = {x.grad(), y.grad(), z.grad()};
}

TEST(Complex, ProductsOfAnySize) {
  for (const int64_t size : {0, 1, 2, 7, 1025, 70001}) {
    SCOPED_TRACE(size);
    expect_near_grads(
        [&](at::TensorOptions options) {
          Tensors grads;
          chain_of_products({size}, options, grads);
          return grads;
        },
        {.units_in_double = 16});  // quotients of quotients
  }
}

TEST(Complex, NothingIsLeftToATen) {
  const at::TensorOptions options(at::kFloat);
  Tensors grads;
  EXPECT_EQ(calls_left([&] { chain_of_products({64}, options, grads); }), std::vector<std::string>());
}

TEST(Complex, SizesThatChange) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const int64_t size = at::randint(5, 50, {1}).item<int64_t>();
        Tensors grads;
        chain_of_products({size, 3}, options, grads);
        return grads;
      },
      {.steps = 6, .misses = 2});
}

TEST(Complex, OperandsThatLieInOtherWays) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = complex_leaf({40, 70}, options), transposed = complex_leaf({70, 40}, options);
    const auto row = complex_leaf({70}, options), sliced = complex_leaf({80, 70}, options), number = complex_leaf({}, options);
    const auto product = x * transposed.t() * row * sliced.slice(0, 0, 80, 2);
    go_back(product * number * number + at::ones({1}, x.options()).expand({40, 70}) * x, options);
    return Tensors{x.grad(), transposed.grad(), row.grad(), sliced.grad(), number.grad()};
  });
}

// Sums over rows and over columns, inside a kernel and as its results.
TEST(Complex, SumsForBroadcastOperands) {
  for (const int64_t rows : {1, 5, 700}) {
    SCOPED_TRACE(rows);
    const auto program = [rows](at::TensorOptions options) {
      const auto x = complex_leaf({rows, 300}, options), bias = complex_leaf({300}, options), scale = complex_leaf({rows, 1}, options);
      go_back((x * bias.conj() + bias) * scale * x, options);
      return Tensors{x.grad(), bias.grad(), scale.grad()};
    };
    expect_near_grads(program, {.units_in_double = 64});  // sums of 300 that cancel
    if (rows == 1) continue;                              // no sums over rows
    EXPECT_EQ(calls_left([&] { program(at::kFloat); }), std::vector<std::string>());
  }
}

TEST(Complex, SumsOfInfinitiesAndNaN) {
  expect_near_grads([](at::TensorOptions options) {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
    const auto x = complex_leaf({40, 64}, options), bias = complex_leaf({64}, options);
    auto gradient = complex_values({40, 64}, options);
    gradient[3][1] = c10::complex<double>(kInfinity, 1);
    gradient[5][2] = c10::complex<double>(2, kNaN);
    gradient[7][4] = c10::complex<double>(1, -kInfinity);
    ((x + bias) * 2).neg().backward(gradient);
    return Tensors{x.grad(), bias.grad()};
  });
}

// Tensors that are conjugate views: saved ones, gradients, incoming ones and a leaf's.
TEST(Complex, Conjugates) {
  const auto program = [](at::TensorOptions options) {
    const auto x = complex_leaf({6, 50}, options), y = complex_leaf({6, 50}, options), z = complex_leaf({50, 6}, options);
    const auto product = (x * y.conj()).conj() * (z.t().conj() * y);
    at::Tensor(product + x.conj() * kI).backward(complex_values({6, 50}, options).conj());
    return Tensors{x.grad(), y.grad(), z.grad()};
  };
  expect_near_grads(program);
  EXPECT_EQ(calls_left([&] { program(at::kFloat); }), std::vector<std::string>());
  expect_near_grads([](at::TensorOptions options) {
    const auto x = complex_leaf({50}, options);
    go_back((x.conj() * x).conj() + x.conj(), options);
    return Tensors{x.grad()};
  });
}

TEST(Complex, PartsOfOneTensor) {
  for (const bool conjugated : {false, true}) {
    SCOPED_TRACE(conjugated);
    expect_near_grads([conjugated](at::TensorOptions options) {
      const auto x = complex_leaf({6, 60}, options);
      const auto parts = x.chunk(2, 1);
      go_back((conjugated ? parts[0].conj() : parts[0]) * parts[1] * kI, options);
      return Tensors{x.grad()};
    });
  }
}

TEST(Complex, LeafThatGetsAConjugate) {
  const auto gradient = [] {
    at::manual_seed(4);
    const auto x = complex_leaf({50}, at::kFloat), y = complex_leaf({50}, at::kFloat);
    go_back(x.conj() * 2 * y, at::kFloat);
    return x.grad();
  };
  const auto stock = gradient();
  hindcast::reset();
  const auto guard = hindcast::enable(fused_options());
  for (int step = 0; step < 2; ++step) {
    const auto ours = gradient();
    EXPECT_EQ(ours.is_conj(), stock.is_conj());
    EXPECT_TRUE(at::allclose(ours, stock));
  }
}

// The backward of a reshape copies a gradient that one hook keeps and another writes to meanwhile.
TEST(Complex, CopiesOfWhatAHookWritesTo) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = complex_leaf({3, 4}, options), w = complex_leaf({3, 4}, options), factor = complex_values({3, 4}, options);
    at::Tensor kept;
    const auto h = (x * w * 2).tanh();
    const auto between = w * 3;
    between.register_hook([&](at::Tensor) {
      const at::NoGradGuard no_grad;
      kept.zero_();
    });
    const auto turned = h.view({4, 3}).t();
    turned.register_hook([&](at::Tensor gradient) { kept = gradient; });
    go_back(turned * factor + between, options);
    return Tensors{x.grad(), w.grad()};
  });
}

TEST(Complex, WithRealNumbers) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = complex_leaf({9, 30}, options), real = near_leaf({9, 30}, options), row = near_leaf({30}, options);
    const auto steps = at::arange(30, options.requires_grad(false));
    // Python's numbers, which do not take part in type promotion with a tensor.
    const auto wide = at::scalar_tensor(1.001, at::kDouble), whole = at::scalar_tensor(3, at::kLong);
    const auto product = x * real / (row * row + 1) * steps * wide * whole + real;
    (at::real(product * product.conj()) + at::imag(x * 3)).sum().backward();
    return Tensors{x.grad(), real.grad(), row.grad()};
  });
}

TEST(Complex, AbsoluteValuesAndAngles) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = complex_leaf({500}, options), y = complex_leaf({500}, options), length = near_leaf({500}, options);
    const auto mixed = (x * y).abs() * length + (x * 2).angle() + at::real(at::polar(length.abs(), length) * y);
    mixed.sum().backward();
    return Tensors{x.grad(), y.grad(), length.grad()};
  });
}

TEST(Complex, GradientsOfFunctions) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = complex_leaf({300}, options), y = complex_leaf({300}, options);
    const auto sum = (x * 0.5).exp() * y.tanh() + x.square() * y.pow(3) + (x.log() + y.sqrt()) * at::sigmoid(x * 0.25);
    go_back(sum + x.sin() * y.sgn(), options);
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(Complex, Masks) {
  const auto program = [](at::TensorOptions options) {
    const auto x = complex_leaf({8, 33}, options), y = complex_leaf({8, 33}, options);
    const auto mask = at::real(x) > 0, other = at::imag(x) > 0;
    const auto chosen = at::where(mask, x * y, y * 2).masked_fill(other, kI) * mask;
    go_back(chosen * y, options);
    return Tensors{x.grad(), y.grad()};
  };
  expect_near_grads(program);
  EXPECT_EQ(calls_left([&] { program(at::kFloat); }), std::vector<std::string>{"aten::scalar_tensor"});
}

// Twice through the same leaves, small and large.
TEST(Complex, LeavesWithGradients) {
  for (const int64_t size : {100, 200000}) {
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = complex_leaf({size}, options), y = complex_leaf({size}, options);
      for (int time = 0; time < 3; ++time) go_back(x * y * x * 2, options);
      return Tensors{x.grad(), y.grad()};
    });
  }
}

// complex64 in a graph of complex128.
TEST(Complex, OfTwoTypes) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = complex_leaf({120}, options), y = complex_leaf({120}, options);
    const auto wide = x.to(at::kComplexDouble) * y * kI;
    wide.backward(at::randn({120}, at::kComplexDouble));
    return Tensors{x.grad(), y.grad()};
  });
}

// Every op of the table, for any gradient: the gradient of x is `fn` of backward()'s argument and of its transpose.
template <class Fn>
at::Tensor through(const Fn&, const at::Tensor& gradient) {
  const auto x = at::zeros_like(gradient).set_requires_grad(true);
  x.register_hook(traceable([](at::Tensor grad) { return Fn()(grad, grad.t().contiguous()); }));
  x.clone().backward(gradient);
  return x.grad();
}

/// All pairs of some parts, row by row.
at::Tensor pairs(const std::vector<double>& parts, at::ScalarType type) {
  const auto part = at::tensor(parts, at::kDouble);
  const auto numbers = at::complex(part.repeat_interleave(part.numel()), part.repeat({part.numel()}));
  return numbers.unsqueeze(1).expand({-1, numbers.numel()}).contiguous().to(c10::toComplexType(type));
}

template <class Fn>
void expect_near_op(const char* name, const Fn& fn) {
  SCOPED_TRACE(name);
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const auto& parts : {std::vector<double>{0.0, -0.0, 1, -2.5, kInfinity, -kInfinity, kNaN}, {0.1, -3, 7, 1e-12, 1e12, -1e-3}}) {
    for (const double part : parts) {  // separately: else the largest number sets the tolerance for the smallest
      if (parts[0] == 0 && part != 1) continue;
      const double scale = parts[0] == 0 ? 1 : std::abs(part);
      expect_near_grads([&](at::TensorOptions options) {
        auto values = parts;
        if (parts[0] != 0) values = {part, scale * 0.7, -scale, scale * 1.25};
        return Tensors{through(fn, pairs(values, c10::typeMetaToScalarType(options.dtype())))};
      });
    }
  }
}

#define HC_OP(expression) \
  expect_near_op(#expression, [](const at::Tensor& a, [[maybe_unused]] const at::Tensor& b) -> at::Tensor { return expression; })

TEST(Complex, EveryOpOnSpecialValues) {
  HC_OP(at::add(a, b).neg());
  HC_OP(at::add(a, b, 0.5).neg());
  HC_OP(at::add(a, kI).neg());
  HC_OP(at::sub(a, b).neg());
  HC_OP(at::sub(a, b, kI).neg());
  HC_OP(at::sub(a, 2.5).neg());
  HC_OP(at::rsub(a, 2.5, 2).neg());
  HC_OP(at::mul(a, b).neg());
  HC_OP(at::mul(a, at::real(b)).neg());
  HC_OP(at::mul(a, kI).neg());
  HC_OP(at::div(a, b).neg());
  HC_OP(at::div(a, 2.5).neg());
  HC_OP(at::div(a, at::imag(b)).neg());
  HC_OP(a.reciprocal().neg());
  HC_OP(a.pow(2).neg());
  HC_OP(a.pow(3).neg());
  HC_OP(a.sgn().neg());
  HC_OP((a.conj() + b).neg());
  HC_OP(a.conj_physical().neg());
  HC_OP((a.neg().neg_().mul_(kI)));
  HC_OP(at::tanh_backward(a, b).neg());
  HC_OP(at::sigmoid_backward(a, b).neg());
  HC_OP(at::where(at::eq(a, b), a, b.neg()));
  HC_OP(at::where(at::ne(a, 1.0), a, b.neg()));
  HC_OP(a.neg().masked_fill(at::logical_and(a, at::logical_not(b)), kI));
  HC_OP(a.neg() * at::logical_xor(a, at::logical_or(a, b)));
}

}  // namespace
}  // namespace hindcast::tests
