// A buffer is free once nothing in LibTorch holds it, and not before.

#include "codegen/cpu/memory/empty_recycled.h"
#include "codegen/cpu/memory/recycler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

constexpr int64_t kRows = 8256;
constexpr int64_t kColumns = 1024;  // slightly more than 32 MiB of floats

at::Tensor recycled(float value = 0) { return empty_strided_recycled({kRows, kColumns}, {kColumns, 1}, at::kFloat).fill_(value); }

bool is_full_of(float value, const at::Tensor& tensor) { return tensor.eq(value).all().item<bool>(); }
bool is_full_of(float value, const c10::Storage& storage) { return is_full_of(value, at::empty({0}).set_(storage)); }

class RecycledTensor : public testing::Test {
 protected:
  void SetUp() override { Recycler::of_process().trim(); }
  void TearDown() override {
    Recycler::of_process().trim();
    EXPECT_EQ(Recycler::of_process().counts().held_buffers, 0U);
  }

  /// Creates a tensor full of 1, keeps only what `hold` returns of it, then creates others.
  template <class Hold>
  void expect_kept(Hold hold) {
    at::Tensor tensor = recycled(1);
    const void* const data = tensor.data_ptr();
    std::optional held = hold(tensor);
    tensor.reset();
    for (int i = 0; i < 3; ++i) EXPECT_NE(recycled(2).data_ptr(), data);
    EXPECT_TRUE(is_full_of(1, *held));
    held.reset();
    EXPECT_EQ(recycled(2).data_ptr(), data);  // of equal buffers, the one freed last
  }
};

TEST_F(RecycledTensor, IsAnOrdinaryOne) {
  const at::Tensor tensor = recycled(3);
  const at::Tensor stock = at::full({kRows, kColumns}, 3.0F);
  EXPECT_TRUE(tensor.equal(stock));
  EXPECT_EQ(tensor.key_set(), stock.key_set());
  EXPECT_EQ(tensor.storage().nbytes(), stock.storage().nbytes());
  EXPECT_TRUE(tensor.storage().resizable());
  EXPECT_EQ(tensor.storage().allocator(), &Recycler::of_process());
  EXPECT_FALSE(tensor.is_pinned());
}

TEST_F(RecycledTensor, MayBeEmptySmallOrStrided) {
  EXPECT_EQ(empty_strided_recycled({0, 5}, {5, 1}, at::kFloat).numel(), 0);
  EXPECT_EQ(empty_strided_recycled({}, {}, at::kDouble).fill_(7).item<double>(), 7);
  EXPECT_EQ(empty_strided_recycled({4, 2}, {1, 4}, at::kLong).fill_(7).sum().item<int64_t>(), 56);
  const at::Tensor transposed = empty_strided_recycled({kRows, kColumns}, {1, kRows}, at::kComplexFloat);
  EXPECT_EQ(transposed.strides(), (at::IntArrayRef{1, kRows}));
  EXPECT_EQ(transposed.storage().nbytes(), static_cast<size_t>(kRows * kColumns * 8));
  EXPECT_THROW(empty_strided_recycled({-1}, {1}, at::kFloat), c10::Error);
}

TEST_F(RecycledTensor, IsKeptByASlice) {
  expect_kept([](const at::Tensor& tensor) { return tensor.slice(0, 1, 2); });
}

TEST_F(RecycledTensor, IsKeptByAStorage) {
  expect_kept([](const at::Tensor& tensor) { return tensor.storage(); });
}

TEST_F(RecycledTensor, IsKeptByADetachedOne) {
  expect_kept([](const at::Tensor& tensor) { return tensor.detach(); });
}

TEST_F(RecycledTensor, IsKeptByOneThatWasSetToIt) {
  expect_kept([](const at::Tensor& tensor) { return at::empty({0}).set_(tensor); });
}

TEST_F(RecycledTensor, IsKeptByALazyClone) {
  expect_kept([](const at::Tensor& tensor) { return tensor._lazy_clone(); });
}

TEST_F(RecycledTensor, IsCopiedWhenALazyCloneIsWrittenTo) {
  const at::Tensor tensor = recycled(1);
  at::Tensor lazy = tensor._lazy_clone();
  EXPECT_EQ(lazy.const_data_ptr(), tensor.const_data_ptr());
  lazy.fill_(2);
  EXPECT_NE(lazy.const_data_ptr(), tensor.const_data_ptr());
  EXPECT_TRUE(is_full_of(1, tensor));
}

TEST_F(RecycledTensor, IsFreeWhenItIsSetToAnother) {
  at::Tensor tensor = recycled(1);
  const void* const data = tensor.data_ptr();
  tensor.set_(at::zeros({3}));
  EXPECT_EQ(recycled().data_ptr(), data);
}

TEST_F(RecycledTensor, ResizesAsAnyOther) {
  at::Tensor tensor = recycled(1);
  const void* const data = tensor.data_ptr();
  tensor.resize_({2, kColumns});
  EXPECT_EQ(tensor.data_ptr(), data);
  tensor.resize_({2 * kRows, kColumns});
  EXPECT_NE(tensor.data_ptr(), data);
  EXPECT_TRUE(is_full_of(1, tensor.slice(0, 0, kRows)));
  EXPECT_EQ(recycled().data_ptr(), data);
  tensor.fill_(4);
  EXPECT_EQ(tensor.sum().item<float>(), 4.0F * 2 * kRows * kColumns);
}

// A buffer may be larger than its storage; only the storage's size counts.
TEST_F(RecycledTensor, GrowsIntoAnotherBufferThoughItsOwnIsLarger) {
  empty_strided_recycled({10 * kRows / 9 * kColumns}, {1}, at::kFloat).fill_(9);
  at::Tensor tensor = empty_strided_recycled({kRows * kColumns}, {1}, at::kFloat).fill_(1);
  EXPECT_EQ(Recycler::of_process().counts().held_buffers, 0U);
  const void* const data = tensor.data_ptr();
  tensor.resize_({20 * kRows / 19 * kColumns});
  EXPECT_NE(tensor.data_ptr(), data);
  EXPECT_TRUE(is_full_of(1, tensor.slice(0, 0, kRows * kColumns)));
}

TEST_F(RecycledTensor, MayHaveItsStorageEmptiedOrReplaced) {
  at::Tensor tensor = recycled(1);
  const void* const data = tensor.data_ptr();
  tensor.storage().set_nbytes(16);
  EXPECT_EQ(tensor.data_ptr(), data);
  tensor.storage().set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)));
  EXPECT_EQ(recycled().data_ptr(), data);
}

TEST_F(RecycledTensor, MayBeFreedOnAnotherThread) {
  at::Tensor tensor = recycled(1);
  const void* const data = tensor.data_ptr();
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(recycled().data_ptr(), data);
}

TEST_F(RecycledTensor, MayOutliveStaticObjects) {
  static at::Tensor tensor;
  tensor = recycled(1);  // freed at exit
}

// Steps that create .grads; a row of one of them is kept for two steps.
TEST_F(RecycledTensor, StepsOfTrainingSeeTheirOwnValues) {
  std::vector<at::Tensor> parameters(3), kept;
  std::vector<float> expected;
  for (int i = 0; i < 3; ++i) parameters[i] = at::zeros({kRows, kColumns}).requires_grad_();
  for (int step = 0; step < 10; ++step) {
    for (int i = 0; i < 3; ++i) parameters[i].mutable_grad() = at::Tensor();
    for (int i = 0; i < 3; ++i) parameters[i].mutable_grad() = recycled(static_cast<float>(10 * step + i));
    kept.push_back(parameters[step % 3].grad()[step]);
    expected.push_back(static_cast<float>(10 * step + step % 3));
    for (size_t k = kept.size() >= 3 ? kept.size() - 3 : 0; k < kept.size(); ++k) {
      EXPECT_TRUE(is_full_of(expected[k], kept[k])) << "step " << step << " row of step " << k;
    }
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_full_of(10 * step + i, parameters[i].grad()));
    if (kept.size() >= 3) kept[kept.size() - 3].reset();
  }
}

TEST_F(RecycledTensor, AStepTakesTheBuffersOfTheOneBefore) {
  Recycler& recycler = Recycler::of_process();
  std::vector<at::Tensor> grads(4);
  for (at::Tensor& grad : grads) grad = recycled();
  const RecyclerCounts before = recycler.counts();
  for (int step = 0; step < 5; ++step) {
    for (at::Tensor& grad : grads) grad.reset();
    for (at::Tensor& grad : grads) grad = recycled();
  }
  EXPECT_EQ(recycler.counts().fresh, before.fresh);
  EXPECT_EQ(recycler.counts().reused, before.reused + 20);
}

}  // namespace
}  // namespace hindcast::codegen::cpu
