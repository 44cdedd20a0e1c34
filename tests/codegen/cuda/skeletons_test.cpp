// Each kind of kernel on tensors of odd shapes and of each dtype, compared with ATen: which kernels ran, and their results. The emulator
// checks their memory accesses.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests::cuda::skeletons_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

const std::vector<at::ScalarType> kFloats = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

class Skeletons : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
    at::manual_seed(1);
  }

  /// `inputs` creates them with a dtype, so that views stay views. `launched`: by dtype.
  using MakeInputs = std::function<Tensors(at::ScalarType type)>;
  template <class Launched>
  static void expect_like_aten(const Function& function, const MakeInputs& inputs, const std::vector<at::ScalarType>& types,
                               Launched launched, int units_in_double = 4) {
    for (const at::ScalarType type : types) {
      SCOPED_TRACE(c10::toString(type));
      at::manual_seed(1);
      const Tensors given = inputs(type);
      const ForwardProgram program(function, given);
      EXPECT_THAT(program.left(), IsEmpty());
      take_launched();
      const Tensors ours = program.run(given);
      EXPECT_THAT(take_launched(), ElementsAreArray(std::vector<std::string>(launched(type))));
      const Tensors stock = function(given), truth = function(as(given, at::kDouble));
      expect_near(ours, stock, type == at::kDouble ? stock : truth, type == at::kDouble ? units_in_double : 4);
    }
  }
  static auto always(std::vector<std::string> names) {
    return [names](at::ScalarType) { return names; };
  }
};

at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) { return at::randn(sizes, at::kDouble).to(type); }

Tensors chain(const Tensors& x) { return {(x[0] * x[1]).tanh() * x[0] + 0.5, (x[0] * x[1]).tanh().exp()}; }

TEST_F(Skeletons, Dense) {
  for (const int64_t numel : {1, 31, 33, 1023, 1025, 4096, 5000}) {
    SCOPED_TRACE(numel);
    const auto inputs = [&](at::ScalarType type) { return Tensors{random({numel}, type), random({numel}, type)}; };
    expect_like_aten(chain, inputs, kFloats, always({"dense_few"}));
  }
  const auto large = [](at::ScalarType type) { return Tensors{random({70001}, type), random({70001}, type)}; };
  expect_like_aten(chain, large, {at::kFloat, at::kHalf}, always({"dense"}));
}

TEST_F(Skeletons, NothingIsLaunchedForNoElements) {
  const auto inputs = [](at::ScalarType type) { return Tensors{random({0, 5}, type), random({0, 5}, type)}; };
  expect_like_aten(chain, inputs, kFloats, always({}));
}

TEST_F(Skeletons, AddressesThatAreNotAligned) {
  for (const int64_t numel : {1, 33, 1023, 5000}) {
    const auto inputs = [&](at::ScalarType type) { return Tensors{random({numel + 1}, type).slice(0, 1), random({numel}, type)}; };
    expect_like_aten(chain, inputs, kFloats, always({"dense_each"}));
  }
}

TEST_F(Skeletons, OneElementForAll) {
  const auto function = [](const Tensors& x) { return Tensors{(x[0] * x[1]).sigmoid() - x[1]}; };
  const auto inputs = [](at::ScalarType type) { return Tensors{random({3, 41}, type), random({}, type)}; };
  expect_like_aten(function, inputs, kFloats, always({"dense_few"}));
}

TEST_F(Skeletons, BroadcastOperands) {
  const auto function = [](const Tensors& x) { return Tensors{(x[0] + x[1]).tanh() * x[2]}; };
  for (const int64_t columns : {8, 32, 1024}) {
    SCOPED_TRACE(columns);
    const auto inputs = [&](at::ScalarType type) {
      return Tensors{random({33, columns}, type), random({columns}, type), random({33, 1}, type)};
    };
    expect_like_aten(function, inputs, kFloats, always({"nest"}));
  }
  // Large enough for two vectors per thread, in an even loop and in the middle of three.
  const auto even = [](at::ScalarType type) { return Tensors{random({66, 1024}, type), random({1024}, type), random({66, 1}, type)}; };
  expect_like_aten(function, even, kFloats, always({"nest"}));
  const auto in_three = [](at::ScalarType type) {
    return Tensors{random({3, 22, 1024}, type), random({3, 1, 1024}, type), random({22, 1}, type)};
  };
  expect_like_aten(function, in_three, kFloats, always({"nest"}));
  for (const int64_t columns : {3, 31, 1023}) {
    SCOPED_TRACE(columns);
    const auto inputs = [&](at::ScalarType type) {
      return Tensors{random({7, columns}, type), random({columns}, type), random({7, 1}, type)};
    };
    expect_like_aten(function, inputs, kFloats, always({"nest_each"}));
  }
}

TEST_F(Skeletons, StridesOfAllKinds) {
  const auto function = [](const Tensors& x) { return Tensors{(x[0] * x[1]).tanh()}; };
  const auto every_second = [](at::ScalarType type) { return Tensors{random({9, 66}, type).slice(1, 0, 66, 2), random({9, 33}, type)}; };
  expect_like_aten(function, every_second, kFloats, always({"nest_each"}));
  const auto far_apart = [](at::ScalarType type) { return Tensors{random({3, 300000}, type).slice(1, 7, 40), random({3, 33}, type)}; };
  expect_like_aten(function, far_apart, {at::kFloat}, always({"nest_each"}));
  const auto permuted = [](at::ScalarType type) {
    return Tensors{random({5, 6, 7, 3}, type).permute({2, 0, 3, 1}), random({7, 5, 3, 6}, type)};
  };
  expect_like_aten(function, permuted, kFloats, always({"nest_each"}));
}

TEST_F(Skeletons, TransposesGoThroughSharedMemory) {
  const auto function = [](const Tensors& x) { return Tensors{(x[0] * x[1]).tanh() + x[2]}; };
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{32, 32}, {33, 65}, {100, 47}}) {
    SCOPED_TRACE(rows);
    const auto inputs = [rows = rows, columns = columns](at::ScalarType type) {
      return Tensors{random({columns, rows}, type).t(), random({rows, columns}, type), random({rows, 1}, type)};
    };
    expect_like_aten(function, inputs, kFloats, always({"tiles"}));
  }
  const auto batches = [](at::ScalarType type) {
    return Tensors{random({3, 40, 35}, type).transpose(1, 2), random({3, 35, 40}, type), random({3, 35, 1}, type)};
  };
  expect_like_aten(function, batches, kFloats, always({"tiles"}));
}

TEST_F(Skeletons, ZerosAround) {
  const auto function = [](const Tensors& x) { return Tensors{(at::constant_pad_nd(x[0], {2, 3, 1, 0}) * x[1]).tanh()}; };
  const auto inputs = [](at::ScalarType type) { return Tensors{random({10, 31}, type), random({11, 36}, type)}; };
  expect_like_aten(function, inputs, kFloats, always({"nest_each"}));
}

TEST_F(Skeletons, ComplexNumbers) {
  const auto function = [](const Tensors& x) { return Tensors{x[0] * x[1] + x[0].conj_physical()}; };
  for (const at::ScalarType type : {at::kComplexFloat, at::kComplexDouble}) {
    for (const int64_t numel : {1, 33, 1024}) {
      const Tensors given{at::randn({numel}, type), at::randn({numel}, type)};
      const ForwardProgram program(function, given);
      const at::Tensor ours = program.run(given)[0];
      const double tolerance = type == at::kComplexFloat ? 1e-6 : 1e-14;
      EXPECT_TRUE(at::allclose(ours, function(given)[0], tolerance, tolerance));
    }
  }
}

// -- rows

Tensors softmax(const Tensors& x) { return {at::softmax(x[0] * 2, -1)}; }
// A row's mean is far smaller than its elements, whose sum rounds at their magnitude and in another order than ATen's. Every sum of a long
// row does.
constexpr int kUnitsOfMeans = 16;
Tensors norm(const Tensors& x) {
  const auto [output, mean, rstd] = at::native_layer_norm(x[0] * 2, {x[0].size(-1)}, x[1], x[2], 1e-5);
  return {output, mean, rstd};
}

TEST_F(Skeletons, RowsInRegisters) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 32}, {5, 64}, {33, 8}, {3, 1024}, {2, 4096}}) {
    SCOPED_TRACE(columns);
    const auto inputs = [rows = rows, columns = columns](at::ScalarType type) {
      return Tensors{random({rows, columns}, type), random({columns}, type), random({columns}, type)};
    };
    expect_like_aten(softmax, inputs, kFloats, always({"rows"}));
    expect_like_aten(norm, inputs, kFloats, always({"rows"}), kUnitsOfMeans);
  }
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{7, 3}, {1, 31}, {5, 33}, {300, 3}, {3, 1023}}) {
    SCOPED_TRACE(columns);
    const auto inputs = [rows = rows, columns = columns](at::ScalarType type) {
      return Tensors{random({rows, columns}, type), random({columns}, type), random({columns}, type)};
    };
    expect_like_aten(softmax, inputs, kFloats, always({"rows_each"}));
    expect_like_aten(norm, inputs, kFloats, always({"rows_each"}), kUnitsOfMeans);
  }
}

TEST_F(Skeletons, LongRows) {
  const auto inputs = [](int64_t columns) {
    return [columns](at::ScalarType type) { return Tensors{random({8, columns}, type), random({columns}, type), random({columns}, type)}; };
  };
  // A row that several passes read stays in shared memory if it fits.
  const auto by_room = [](const std::string& name, int64_t columns, const std::string& behind = "") {
    return [=](at::ScalarType type) {
      const bool has_room = columns * static_cast<int64_t>(c10::elementSize(type)) <= codegen::cuda::Limits().most_shared_bytes;
      return std::vector<std::string>{name + (has_room ? "shared" : "long") + behind};
    };
  };
  for (const int64_t columns : {20000, 100000})
    expect_like_aten(softmax, inputs(columns), kFloats, by_room("rows_", columns), kUnitsOfMeans);
  for (const int64_t columns : {20001, 100001})
    expect_like_aten(norm, inputs(columns), kFloats, by_room("rows_", columns, "_each"), kUnitsOfMeans);
}

TEST_F(Skeletons, FewLongRowsAreShared) {
  const CostsOfACard costs;  // the CPU would leave such rows to ATen
  const auto inputs = [](int64_t columns) {
    return [columns](at::ScalarType type) { return Tensors{random({2, columns}, type), random({columns}, type), random({columns}, type)}; };
  };
  using Launched = std::vector<std::string>;
  expect_like_aten(softmax, inputs(100000), kFloats, always(Launched(2, "rows_split")), kUnitsOfMeans);
  expect_like_aten(norm, inputs(100001), kFloats, always(Launched(3, "rows_split_each")), kUnitsOfMeans);
  const auto sum = [](const Tensors& x) { return Tensors{(x[0] * x[0]).sum(1)}; };
  expect_like_aten(sum, inputs(100000), kFloats, always(Launched(2, "rows_split")), kUnitsOfMeans);
}

TEST_F(Skeletons, ColumnsOfFewRows) {
  const auto function = [](const Tensors& x) {
    const at::Tensor y = (x[0] * x[0]).tanh();
    return Tensors{y, y.sum(0)};
  };
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{2, 32}, {17, 64}, {31, 16}}) {
    const auto inputs = [rows = rows, columns = columns](at::ScalarType type) { return Tensors{random({rows, columns}, type)}; };
    expect_like_aten(function, inputs, kFloats, always({"rows_each"}));
  }
  const auto wide = [](at::ScalarType type) { return Tensors{random({17, 20000}, type)}; };
  expect_like_aten(function, wide, kFloats, always({"rows"}));
}

TEST_F(Skeletons, ColumnsInSlices) {
  const auto function = [](const Tensors& x) {
    const at::Tensor y = x[0].tanh() * x[0];
    return Tensors{y, y.sum(0), at::amax(y, 0), at::amin(y, 0)};
  };
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{5000, 64}, {9000, 16}}) {
    SCOPED_TRACE(rows);
    const auto inputs = [rows = rows, columns = columns](at::ScalarType type) { return Tensors{random({rows, columns}, type)}; };
    expect_like_aten(function, inputs, kFloats, always({"rows", "merge_slices"}));
  }
  const auto odd = [](at::ScalarType type) { return Tensors{random({3333, 33}, type)}; };
  expect_like_aten(function, odd, kFloats, always({"rows_each", "merge_slices"}));
}

TEST_F(Skeletons, RowsThatNobodyHas) {
  const auto no_rows = [](at::ScalarType type) { return Tensors{random({0, 5}, type)}; };
  expect_like_aten([](const Tensors& x) { return Tensors{(x[0] * 2).sum(0)}; }, no_rows, kFloats, always({}));
  const auto no_columns = [](at::ScalarType type) { return Tensors{random({5, 0}, type)}; };
  expect_like_aten([](const Tensors& x) { return Tensors{(x[0] * 2).sum(1)}; }, no_columns, kFloats, always({"rows_long"}));
}

}  // namespace
}  // namespace hindcast::tests::cuda::skeletons_test
