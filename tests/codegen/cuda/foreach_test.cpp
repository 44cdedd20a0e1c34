// Many small sets of tensors become few launches.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "codegen/cuda/source.h"
#include "codegen/kernel/backend.h"
#include "engine/optim/rules.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"

namespace hindcast::tests {
namespace {

using cuda::take_launched;
using cuda::why_no_compiler;
using testing::ElementsAre;

struct Sets {
  std::vector<at::Tensor> parameters, gradients, averages, squares;
};

Sets sets_of(int count, int64_t numel, int64_t offset) {
  Sets sets;
  const auto make = [&] { return at::rand({numel + offset}).slice(0, offset); };
  for (int i = 0; i < count; ++i) {
    sets.parameters.push_back(make());
    sets.gradients.push_back(make());
    sets.averages.push_back(make());
    sets.squares.push_back(make());
  }
  return sets;
}

// One step of Adam for each. `updates`: for each set, the one with its scalars.
void run(const Sets& sets, const std::vector<const engine::Update*>& updates) {
  engine::Formula formula(at::kFloat, /*clips=*/false);
  updates[0]->formula(formula, updates[0]->flags);
  const auto* backend = codegen::backend_of(c10::kCPU);
  std::string why_not;
  const auto kernel = backend->kernel(formula.body(), why_not);
  ASSERT_NE(kernel, nullptr) << why_not;
  codegen::ForeachSets foreach;
  for (size_t i = 0; i < sets.parameters.size(); ++i) {
    const std::vector<at::Tensor> tensors = {sets.parameters[i], sets.gradients[i], sets.averages[i], sets.squares[i]};
    for (const uint8_t tensor : formula.tensors())
      foreach
        .memory.push_back(static_cast<char*>(tensors[tensor].data_ptr()));
    foreach
      .numel.push_back(sets.parameters[i].numel());
    foreach
      .scalars.push_back(updates[i]->scalars.data());
  }
  backend->run_foreach(formula.body(), *kernel, foreach);
}

class Foreach : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
    at::manual_seed(1);
  }
};

TEST_F(Foreach, TakesFewLaunches) {
  const engine::Update update = engine::adam({.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, 1);
  engine::Formula formula(at::kFloat, false);
  update.formula(formula, update.flags);
  const int most = codegen::cuda::sets_of_launch(formula.body());
  EXPECT_GT(most, 40);
  const Sets sets = sets_of(2 * most + 1, 100, 0);
  take_launched();
  run(sets, std::vector<const engine::Update*>(sets.parameters.size(), &update));
  EXPECT_THAT(take_launched(), ElementsAre("sets", "sets", "sets"));
}

TEST_F(Foreach, EachHasItsOwnScalarsAndAlignment) {
  const engine::Update first = engine::adam({.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, 1);
  const engine::Update third = engine::adam({.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, 3);
  for (const int64_t offset : {0, 1}) {
    for (const int64_t numel : {1, 33, 5000}) {
      const Sets sets = sets_of(3, numel, offset);
      std::vector<at::Tensor> expected;
      for (size_t i = 0; i < 3; ++i) {
        const engine::Update& update = i == 1 ? third : first;
        const auto& s = update.scalars;  // beta1, share1, beta2, share2, correction, eps, step size
        const at::Tensor average = sets.averages[i] * s[0] + sets.gradients[i] * s[1];
        const at::Tensor square = sets.squares[i] * s[2] + sets.gradients[i] * sets.gradients[i] * s[3];
        expected.push_back(sets.parameters[i] + average * s[6] / (square.sqrt() / s[4] + s[5]));
      }
      take_launched();
      run(sets, {&first, &third, &first});
      const std::string entry = offset == 0 ? "sets" : "sets_each";
      EXPECT_THAT(take_launched(), ElementsAre(entry, entry, entry)) << "scalars are those of a launch";
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(at::allclose(sets.parameters[i], expected[i], 1e-5, 1e-6)) << offset << ", " << numel << ", " << i;
    }
  }
}

}  // namespace
}  // namespace hindcast::tests
