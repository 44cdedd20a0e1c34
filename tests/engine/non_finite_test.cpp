// One pass over a tensor's memory finds every infinity and NaN, whatever its dtype and layout.

#include "engine/diagnosis/non_finite.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hindcast::engine::non_finite_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class NonFinite : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::TensorOptions options() const { return at::TensorOptions(GetParam()); }
};

TEST_P(NonFinite, IsFoundInEveryPlace) {
  const at::Tensor tensor = at::ones({1000}, options());
  EXPECT_FALSE(has_non_finite(tensor));
  for (const double odd : {kInf, -kInf, std::nan(""), -std::nan("")}) {
    for (const int64_t place : {0, 1, 255, 256, 767, 768, 998, 999}) {
      tensor[place] = odd;
      EXPECT_TRUE(has_non_finite(tensor)) << odd << " at " << place;
      tensor[place] = 1;
    }
  }
  EXPECT_FALSE(has_non_finite(tensor));
}

TEST_P(NonFinite, IsFoundByEveryThread) {
  const at::Tensor tensor = at::ones({3'000'000}, options());
  EXPECT_FALSE(has_non_finite(tensor));
  for (const int64_t place : {0, 1'500'000, 2'999'999}) {
    tensor[place] = kInf;
    EXPECT_TRUE(has_non_finite(tensor)) << place;
    tensor[place] = 0;
  }
}

TEST_P(NonFinite, IsNotTheLargestNumberNorTheSmallest) {
  const auto real = c10::toRealValueType(GetParam());
  const at::Tensor tensor = at::zeros({300}, real);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, real, "limits", [&] {
    using Limits = std::numeric_limits<scalar_t>;
    const scalar_t limits[] = {Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min(), scalar_t(-0.0)};
    for (int i = 0; i < 300; ++i) tensor[i] = limits[i % 5];
  });
  EXPECT_FALSE(has_non_finite(tensor.to(GetParam())));
}

TEST_P(NonFinite, OfStridesAndBroadcasts) {
  const at::Tensor memory = at::ones({6, 8}, options());
  memory[1][3] = kInf;
  EXPECT_TRUE(has_non_finite(memory.t()));
  EXPECT_TRUE(has_non_finite(memory.slice(1, 1, 8, 2)));
  EXPECT_FALSE(has_non_finite(memory.slice(1, 0, 8, 2))) << "between its elements";
  EXPECT_FALSE(has_non_finite(memory.slice(0, 2, 6)));
  EXPECT_TRUE(has_non_finite(memory.select(1, 3).unsqueeze(0).expand({5, 6})));
  EXPECT_FALSE(has_non_finite(memory.select(1, 4).unsqueeze(0).expand({5, 6})));
  EXPECT_TRUE(has_non_finite(memory[1][3].expand({1 << 30, 4})));
}

INSTANTIATE_TEST_SUITE_P(Types, NonFinite,
                         testing::Values(at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(NonFiniteOthers, AreSkipped) {
  EXPECT_FALSE(has_non_finite({}));
  EXPECT_FALSE(has_non_finite(at::ones({3}, at::kLong)));
  EXPECT_FALSE(has_non_finite(at::full({0}, kInf)));
  EXPECT_FALSE(has_non_finite(at::_efficientzerotensor({3})));
}

TEST(NonFiniteOthers, SparseValuesAreLookedAt) {
  EXPECT_FALSE(has_non_finite(at::ones({3}).to_sparse()));
  EXPECT_TRUE(has_non_finite(at::full({3}, kInf).to_sparse()));
}

TEST(DescribeValues, CountsAndShowsTheFirst) {
  const at::Tensor tensor = at::tensor({1.0, -0.5, kInf, std::nan(""), -kInf, 2.0}, at::kFloat).view({2, 3});
  EXPECT_EQ(describe_values(tensor), "Float[2, 3], 2 infinite, 1 NaN, the first at [0, 2]: inf; the finite ones from -0.5 to 2");
  EXPECT_EQ(describe_values(tensor.slice(1, 0, 1).slice(0, 0, 1)), "Float[1, 1], from 1 to 1");
  EXPECT_EQ(describe_values(at::full({}, kInf, at::kHalf)), "Half[], 1 infinite, 0 NaN, the first at []: inf");
  EXPECT_EQ(describe_values(at::complex(at::full({2}, kInf), at::ones({2}))),
            "ComplexFloat[2], 2 infinite, 0 NaN, the first at [0]: (inf,1)");
  EXPECT_EQ(describe_values(at::ones({2}, at::kLong)), "Long[2]");
  EXPECT_EQ(describe_values({}), "undefined");
}

}  // namespace
}  // namespace hindcast::engine::non_finite_test
