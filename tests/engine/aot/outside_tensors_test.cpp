// Tensors that a function reads from outside, and programs that are useless without them.

#include "hindcast/detail/aot_core.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace hindcast::tests {
namespace {

using detail::AotCore;
using detail::FunctionOutput;
using detail::HasOwner;

class ScaledFromOutside {
 public:
  ScaledFromOutside()
      : core_([] {
          AotOptions options;
          options.fw_compiler = options.bw_compiler = compilers::eager();
          return options;
        }()) {}

  at::Tensor call(const std::string& facts, HasOwner has_owner) {
    const auto function = [this](const std::vector<at::Tensor>& inputs) { return FunctionOutput{{inputs[0] * scale}, nullptr, {}}; };
    return core_.call({{at::ones({3})}, facts, {}, function, std::move(has_owner)}).tensors.at(0);
  }
  void forget(const std::string& facts) { core_.forget(facts); }
  AotStats stats() const { return core_.stats(); }

  at::Tensor scale = at::full({3}, 2);

 private:
  AotCore core_;
};

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;

TEST(OutsideTensors, LiveAsLongAsProgramsWhereNobodyOwnsThem) {
  ScaledFromOutside scaled;
  scaled.call("a", {});
  const WeakTensor seen(scaled.scale.getIntrusivePtr());
  scaled.scale = at::full({3}, 3);
  EXPECT_FALSE(seen.expired());
  scaled.forget("a");
  EXPECT_TRUE(seen.expired());
}

TEST(OutsideTensors, AreNotKeptAliveWhereTheyHaveAnOwner) {
  ScaledFromOutside scaled;
  const auto has_owner = [](const at::Tensor&) { return true; };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(scaled.call("a", has_owner), at::full({3}, 2)));
  EXPECT_EQ(scaled.stats().hits, 2u);
  const WeakTensor seen(scaled.scale.getIntrusivePtr());
  scaled.scale = at::full({3}, 3);
  EXPECT_TRUE(seen.expired());
  EXPECT_TRUE(at::equal(scaled.call("a", has_owner), at::full({3}, 3))) << "a program whose tensors are gone is not for this call";
}

TEST(OutsideTensors, ForgetDropsTheProgramsOfOneKindOfCall) {
  ScaledFromOutside scaled;
  for (const char* facts : {"a", "b", "a", "b"}) scaled.call(facts, {});
  EXPECT_EQ(scaled.stats().hits, 2u);
  scaled.forget("a");
  scaled.call("a", {});
  scaled.call("b", {});
  EXPECT_EQ(scaled.stats().traces, 3u);
  EXPECT_EQ(scaled.stats().hits, 3u);
}

}  // namespace
}  // namespace hindcast::tests
