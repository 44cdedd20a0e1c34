// Functions that are compiled ahead of time, on an accelerator: their programs run on the streams of their callers and of their nodes.

#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>

#include "engine/aot/aot.h"
#include "tests/streams/two_engines.h"
#include "tests/support/fake_device.h"

namespace hindcast::tests {
namespace {

TEST(StreamsOfFunctions, AreThoseOfTheirCallers) {
  install_fake_device();
  AotOptions options;
  options.async = false;
  const AotFunction<std::function<at::Tensor(at::Tensor, at::Tensor)>> function{
      [](const at::Tensor& x, const at::Tensor& w) { return (x.mm(w) * x).tanh(); }, options};
  for (const int side : {0, 1}) {
    expect_same([&](Seen& seen) {
      const auto x = leaf(1, fake()), w = leaf(2, fake());
      order(stream(0), stream(side));
      at::Tensor y;
      {
        const c10::StreamGuard guard(stream(side));
        y = function(x, w);
      }
      order(stream(side), stream(0));
      auto z = function(y * x, w);
      seen.hook(y, "y");
      z.sum().backward();
      seen.show(x.grad());
      seen.show(w.grad());
    });
  }
}

}  // namespace
}  // namespace hindcast::tests
