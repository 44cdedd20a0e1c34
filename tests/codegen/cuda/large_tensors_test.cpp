// Tensors of more elements than 32 bits can count. The first and last blocks of each launch run; what lies between takes only address
// space.

#include <ATen/ATen.h>
#include <c10/util/Flags.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel/backend.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/cuda_emulator/runtime/launch.h"
#include "tests/support/row_program.h"

C10_DECLARE_bool(caffe2_cpu_allocator_do_junk_fill);

namespace hindcast::tests::cuda::large_tensors_test {
namespace {

using at::Tensor;
using codegen::Extent;
using Kind = codegen::Reduction::Kind;
using Over = codegen::Reduction::Over;
using Names = std::vector<std::string>;

constexpr int64_t kMany = (int64_t{1} << 31) + 1024, kEnd = 2048;

/// New memory is not touched.
class WithoutFilling {
 public:
  WithoutFilling() { FLAGS_caffe2_cpu_allocator_do_junk_fill = false; }
  ~WithoutFilling() { FLAGS_caffe2_cpu_allocator_do_junk_fill = true; }
  WithoutFilling(const WithoutFilling&) = delete;
  WithoutFilling& operator=(const WithoutFilling&) = delete;
};

class LargeTensors : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
    at::manual_seed(1);
    emulator_machine();  // starts filling new memory
    filling_.emplace();
    blocks_.emplace(3);
  }

 private:
  std::optional<WithoutFilling> filling_;
  std::optional<WithBlocksAtEnds> blocks_;
};

Tensor begin_of(const Tensor& x) { return x.flatten().slice(0, 0, kEnd); }
Tensor end_of(const Tensor& x) { return x.flatten().slice(0, x.numel() - kEnd); }

/// Numbers at both ends only.
Tensor made(at::IntArrayRef sizes) {
  Tensor x = at::empty(sizes, at::kHalf);
  for (const Tensor& part : {begin_of(x), end_of(x)}) part.normal_();
  return x;
}

/// x * y, of tensors in their given layouts.
Tensor product(const Tensor& x, const Tensor& y, std::vector<int8_t> dims_of_y, const Names& kernels) {
  const auto symbols = capture::SymbolTable::make();
  codegen::Group group;
  for (const int64_t size : x.sizes()) group.domain.push_back(symbols->integer(size));
  std::vector<int8_t> dims;
  for (int64_t dim = 0; dim < x.dim(); ++dim) dims.push_back(static_cast<int8_t>(dim));
  group.body.loads = {{x.scalar_type()}, {y.scalar_type()}};
  group.loads = {capture::ValueId{0}, capture::ValueId{1}};
  group.accesses = {{{}, dims}, {{}, std::move(dims_of_y)}};
  group.body.ops = {{"mul", {kX, {codegen::Operand::Kind::Load, 1}}}};
  group.body.stores = {{result(0), x.scalar_type(), Extent::Element}};
  group.stores = {capture::ValueId{2}};
  group.shapes = {group.domain};
  group.orders.emplace_back();
  std::string why_not;
  const codegen::Backend& backend = *codegen::backend_of(c10::kCPU);
  const auto kernel = backend.kernel(group.body, why_not);
  EXPECT_TRUE(kernel) << why_not;
  if (!kernel) return {};
  capture::Env env;
  capture::Evaluator(*symbols).evaluate(capture::bindings_at_capture(*symbols), env);
  codegen::Step step;
  step.inputs = {{0, false}, {1, false}};
  step.outputs = {2};
  codegen::Slots slots = {x, y, Tensor()};
  take_launched();
  backend.call(group, kernel)->run(step, slots, env);
  EXPECT_EQ(take_launched(), kernels);
  return slots[2];
}

void expect_equal_at_ends(const Tensor& ours, const Tensor& x, const Tensor& y) {
  for (const auto part : {begin_of, end_of}) {
    const Tensor seen = part(ours), expected = part(x) * part(y), differ = seen.ne(expected).nonzero();
    EXPECT_EQ(differ.numel(), 0) << differ.flatten().slice(0, 0, 5);
  }
}

TEST_F(LargeTensors, ThatLieAlong) {
  const Tensor x = made({kMany}), y = made({kMany});
  expect_equal_at_ends(product(x, y, {0}, {"dense"}), x, y);
}

TEST_F(LargeTensors, ThatAreNotAligned) {
  const Tensor x = made({kMany + 1}).slice(0, 1), y = made({kMany});
  expect_equal_at_ends(product(x, y, {0}, {"dense_each"}), x, y);
}

TEST_F(LargeTensors, WithABroadcastOperand) {
  const Tensor x = made({kMany / 1024, 1024}), y = at::randn({1024}, at::kHalf);
  expect_equal_at_ends(product(x, y, {-1, 0}, {"nest"}), x, y.repeat({kEnd / 1024}));  // counts vectors of 8
}

TEST_F(LargeTensors, WithABroadcastOperandThatIsNotAligned) {
  const Tensor x = made({kMany / 1024, 1024}), y = at::randn({1025}, at::kHalf).slice(0, 1);
  expect_equal_at_ends(product(x, y, {-1, 0}, {"nest_any"}), x, y.repeat({kEnd / 1024}));
}

TEST_F(LargeTensors, Transposed) {
  const Tensor x = made({kMany / 1024, 1024}), whole = at::empty({1024, kMany / 1024}, at::kHalf), y = whole.t();
  for (const int64_t row : {int64_t{0}, y.size(0) - 4}) y.slice(0, row, row + 4).normal_();
  const Tensor ours = product(x, y, {0, 1}, {"tiles"});
  constexpr int64_t kTiles = 3 * 32;  // that run
  const int64_t last = y.size(0) - 1;
  EXPECT_TRUE(at::equal(ours[0].slice(0, 0, kTiles), (x[0] * y[0]).slice(0, 0, kTiles)));
  EXPECT_TRUE(at::equal(ours[last].slice(0, -kTiles), (x[last] * y[last]).slice(0, -kTiles)));
}

// Subtracts a maximum, so that the row is read twice.
Tensor below_the_largest(const Tensor& x, const Names& kernels) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row), {"sub", {kX, result(0)}}};
  program.store(result(1), Extent::Element);
  take_launched();
  const Tensor ours = program.run(x)[0];
  EXPECT_EQ(take_launched(), kernels);
  return ours;
}

TEST_F(LargeTensors, OfManyRows) {
  for (const int64_t columns : {1024, 1023, 20000, 20001}) {
    SCOPED_TRACE(columns);
    const int64_t rows = kMany / columns + 1;
    const Tensor x = at::empty({rows, columns}, at::kHalf);
    for (const int64_t row : {int64_t{0}, rows - 1}) x[row].normal_();
    const std::string kernel = columns > 8192 ? "rows_shared" : "rows";
    const Tensor ours = below_the_largest(x, {columns % 2 == 0 ? kernel : kernel + "_each"});
    for (const int64_t row : {int64_t{0}, rows - 1}) EXPECT_TRUE(at::equal(ours[row], x[row] - x[row].amax()));
  }
}

}  // namespace
}  // namespace hindcast::tests::cuda::large_tensors_test
