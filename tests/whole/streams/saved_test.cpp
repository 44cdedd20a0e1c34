// Saved tensors that are recomputed or offloaded to the host, on an accelerator.

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "hindcast/checkpoint.h"
#include "hooks/saved_tensor_hooks.h"
#include "tests/support/fake_device.h"
#include "tests/whole/streams/two_engines.h"

namespace hindcast::tests {
namespace {

at::Tensor layer(const at::Tensor& x, const at::Tensor& w) { return (x.mm(w) * x).tanh(); }

// So that its memory is not reused meanwhile.
void is_read_on(const at::Tensor& tensor, const c10::Stream& stream) {
  c10::impl::VirtualGuardImpl(at::kPrivateUse1).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

class StreamsOfSavedTensors : public ::testing::Test {
 protected:
  void SetUp() override { install_fake_device(); }
};

TEST_F(StreamsOfSavedTensors, ComputedAgain) {
  for (const int side : {0, 1}) {
    expect_same([&](Seen& seen) {
      const auto x = leaf(1, fake()), w = leaf(2, fake());
      at::Tensor y = on_side(side, [&] { return checkpoint(layer, checkpoint(layer, x, w), w); });
      auto z = checkpoint(layer, y * x, w);
      seen.hook(y, "y");
      z.sum().backward();
      seen.show(x.grad());
      seen.show(w.grad());
    });
  }
}

TEST_F(StreamsOfSavedTensors, OfAFunctionWithAStreamOfItsOwn) {
  expect_same([&](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    const auto branches = [](const at::Tensor& a, const at::Tensor& b) {
      const auto first = layer(a, b);
      is_read_on(first, stream(1));
      const auto second = on_side(1, [&] { return layer(first, b).sin(); });
      is_read_on(second, stream(0));
      return first.exp() * second.exp();
    };
    checkpoint(branches, x.sin(), w).sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

// The node that first requests them runs on the stream that the function ends on, not on the one that it starts on.
TEST_F(StreamsOfSavedTensors, OfAFunctionThatEndsOnAStreamOfItsOwn) {
  expect_same([&](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    const auto ends_aside = [&](const at::Tensor& a, const at::Tensor& b) {
      const auto first = layer(a, b);
      is_read_on(first, stream(1));
      seen.note(current_streams());
      auto second = on_side(1, [&] { return layer(first, b).sin().exp(); });
      is_read_on(second, stream(0));
      return second;
    };
    auto y = checkpoint(ends_aside, checkpoint(ends_aside, x.sin(), w), w);
    y.sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

TEST_F(StreamsOfSavedTensors, InTheMemoryOfTheHost) {
  OffloadOptions options;
  options.min_bytes = 64;  // 4 x 4 of floats
  for (const int side : {0, 1}) {
    expect_same([&](Seen& seen) {
      const auto x = leaf(1, fake()), w = leaf(2, fake());
      at::Tensor y = on_side(side, [&] { return offload_to_host(options, layer, x.sin(), w); });
      auto z = offload_to_host(options, [&] { return checkpoint(layer, y * x, w).t().exp(); });
      seen.hook(y, "y");
      z.sum().backward();
      seen.show(x.grad());
      seen.show(w.grad());
    });
  }
}

TEST_F(StreamsOfSavedTensors, WhatGoesToTheHostIsLargeAndNoLeaf) {
  const OffloadOptions options{.min_bytes = 64};
  const auto device_of_packed = [&](const at::Tensor& tensor) {
    const OffloadToHost offload(options);
    auto hooks = hooks::current_saved_tensor_hooks()->next();
    take_unordered();
    hooks->call_pack_hook(tensor);
    const auto back = hooks->call_unpack_hook();
    EXPECT_TRUE(to_cpu(back).equal(to_cpu(tensor.detach())));
    EXPECT_EQ(back.strides(), tensor.strides());
    EXPECT_EQ(back.device(), tensor.device());
    return back.storage().is_alias_of(tensor.storage()) ? "stays" : "goes";
  };
  const auto w = leaf(1, fake());
  EXPECT_STREQ(device_of_packed(w.sin()), "goes");
  EXPECT_STREQ(device_of_packed(w.sin().t()), "goes");
  EXPECT_STREQ(device_of_packed(w), "stays");
  EXPECT_STREQ(device_of_packed(w.t()), "stays");                                          // a view of a leaf
  EXPECT_STREQ(device_of_packed(w.sin().narrow(0, 0, 2)), "stays");                        // 32 bytes
  EXPECT_STREQ(device_of_packed(leaf(2, fake(), {8, 8}).sin().narrow(1, 0, 4)), "stays");  // not dense
  EXPECT_STREQ(device_of_packed(leaf(3, at::kCPU, {8, 8}).sin()), "stays");
}

}  // namespace
}  // namespace hindcast::tests
