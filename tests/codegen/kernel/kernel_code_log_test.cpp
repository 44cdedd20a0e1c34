// The log `kernel_code`: a kernel's text, and the group that first requested it.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

TEST(KernelCodeLog, NamesTheNodesOfTheGroup) {
  hindcast::reset();
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  const auto guard = enable(options);
  const LogCapture logs("kernel_code");
  for (int i = 0; i < 2; ++i) {  // a kernel that no other test of this process compiles
    const auto x = at::full({1 << 14}, 0.5).set_requires_grad(true);
    (x.atan().exp().atan().tanh() * x).sum().backward();
  }
  const std::string text = logs.text();
  const size_t begin = text.find(", for graph 0: ");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::string sentence = text.substr(begin, text.find('\n', begin) - begin);
  for (const char* part : {"in one kernel of ", "TanhBackward0", "ExpBackward0", "AtanBackward0", "it stopped growing at "}) {
    EXPECT_THAT(sentence, testing::HasSubstr(part));
  }
  EXPECT_THAT(text, testing::HasSubstr("tanh_backward")) << "the text itself";
}

}  // namespace
}  // namespace hindcast::tests
