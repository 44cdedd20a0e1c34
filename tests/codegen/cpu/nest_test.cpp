// Kernels over tensors of different layouts.

#include "codegen/cpu/loop_nest.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/codegen/cpu/near_grads.h"

namespace hindcast::tests {
namespace {

using codegen::Ints;
using codegen::make_nest;
using Tensors = std::vector<at::Tensor>;

/// out = a + 10 * b, where b may be one element.
template <class T, bool kStill>
void add_kernel(const device::LoopArguments& arguments) {
  char* const* const pointers = arguments.pointers;
  const T* a = reinterpret_cast<const T*>(pointers[0]);
  const T* b = reinterpret_cast<const T*>(pointers[1]);
  T* out = reinterpret_cast<T*>(pointers[2]);
  for (long i = 0; i < arguments.count; ++i) out[i] = static_cast<T>(a[i] + 10 * b[kStill ? 0 : i]);
}

/// By a nest over `a`, and `b` in its layout, to a contiguous result.
template <class T, bool kStill = false>
at::Tensor add_by_nest(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor out = at::full(a.sizes(), -1, a.options());
  std::vector<Ints> steps;
  codegen::Pointers pointers;
  for (const at::Tensor& tensor : {a, b, out}) {
    Ints& own = steps.emplace_back(tensor.strides().begin(), tensor.strides().end());
    for (int64_t& step : own) step *= static_cast<int64_t>(sizeof(T));
    pointers.push_back(static_cast<char*>(tensor.data_ptr()));
  }
  std::vector<uint8_t> axes;
  for (uint8_t axis = 0; axis < a.dim(); ++axis) axes.push_back(axis);
  const auto nest = make_nest(a.sizes(), axes, steps);
  const int64_t width = sizeof(T);
  codegen::cpu::run_nest(add_kernel<T, kStill>, nest, pointers, {width, kStill ? 0 : width, width}, nullptr, 64);
  return out;
}

template <class T>
void expect_sums(at::ScalarType type) {
  const auto numbers = [&](at::IntArrayRef sizes) {
    return at::arange(c10::multiply_integers(sizes), at::kLong).remainder(11).to(type).view(sizes);
  };
  const auto check = [](const at::Tensor& a, const at::Tensor& b) {
    EXPECT_TRUE(at::equal(add_by_nest<T>(a, b), a + b * 10)) << a.sizes() << " " << a.strides() << " " << b.strides();
  };
  for (const auto& [rows, columns] : {std::pair(1, 1), {2, 3}, {31, 33}, {32, 128}, {33, 129}, {300, 5}, {5, 300}}) {
    check(numbers({rows, columns}), numbers({columns, rows}).t());
    check(numbers({columns, rows}).t(), numbers({columns, rows}).t());
    check(numbers({rows, columns}), numbers({rows, columns}));
    check(numbers({2 * rows, 3 * columns}).slice(0, 0, {}, 2).slice(1, 1, {}, 3), numbers({rows, columns}));
    check(numbers({rows, columns}), numbers({columns}).expand({rows, columns}));
    // One number per row, also per row of each block or of all blocks alike.
    check(numbers({rows, columns}), numbers({rows, 1}).expand({rows, columns}));
    check(numbers({4, rows, columns}), numbers({4, rows, 1}).expand({4, rows, columns}));
    check(numbers({4, rows, columns}), numbers({rows, 1}).expand({4, rows, columns}));
    check(numbers({4, rows, columns}), numbers({4, 1, 1}).expand({4, rows, columns}));
    check(numbers({4, columns, rows}).transpose(1, 2), numbers({4, rows, 1}).expand({4, rows, columns}));
    check(numbers({rows, columns}), numbers({columns, rows, 2}).select(2, 1).t());
    // One row for all rows of a block, different in each block or the same in all.
    check(numbers({7, rows, columns}), numbers({7, 1, columns}).expand({7, rows, columns}));
    check(numbers({7, rows, columns}), numbers({columns}).expand({7, rows, columns}));
    check(numbers({7, rows, columns}), numbers({rows, columns}).expand({7, rows, columns}));
    check(numbers({rows, 7, columns}).transpose(0, 1), numbers({columns}).expand({7, rows, columns}));
  }
  for (const auto& order : std::vector<std::vector<int64_t>>{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    std::vector<int64_t> sizes(3), back(3);
    for (size_t i = 0; i < 3; ++i) sizes[i] = std::vector<int64_t>{7, 34, 130}[static_cast<size_t>(order[i])];
    for (size_t i = 0; i < 3; ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    check(numbers({7, 34, 130}), numbers(sizes).permute(back));
  }
  check(numbers({1000}).slice(0, 0, {}, 2), numbers({1500}).slice(0, 0, {}, 3));
}

TEST(Nest, ReadsTensorsAsTheyLie) {
  expect_sums<uint8_t>(at::kByte);
  expect_sums<int16_t>(at::kShort);
  expect_sums<float>(at::kFloat);
  expect_sums<double>(at::kDouble);
}

// An operand that was broadcast at capture and now is not is passed one element at a time.
TEST(Nest, AValueForEachElementWhereThereWasOne) {
  const at::Tensor a = at::randn({5, 7}), b = at::randn({7, 5}).t();
  EXPECT_TRUE(at::equal(add_by_nest<float, true>(a, b), a + b * 10));
  EXPECT_TRUE(at::equal(add_by_nest<float, true>(a.t().contiguous().t(), b), a + b * 10));
  const at::Tensor column = at::randn({5, 1}).expand({5, 7});
  EXPECT_TRUE(at::equal(add_by_nest<float, true>(a, column), a + column * 10));
}

TEST(Nest, TransposedTensorsInPrograms) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({67, 150}, options), y = near_leaf({150, 67}, options), z = near_leaf({4, 150, 67}, options);
    const auto product = (x.sigmoid() * y.t()).tanh();
    (product * z.transpose(1, 2)).square().sum().backward();
    return Tensors{x.grad(), y.grad(), z.grad()};
  });
}

TEST(Nest, ChannelsLastAmongOthers) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({2, 5, 6, 7}, options);
    const auto y = at::randn({2, 5, 6, 7}).to(options.dtype()).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
    ((x.sigmoid() * y).tanh() * (y * x).sin()).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
