// Kernels with only their first entry points, until calls have requested others, which are compiled in the background: results, which entry
// points serve a call meanwhile, and what is compiled when.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/entry.h"
#include "codegen/kernel/kernel_object.h"
#include "hindcast/hindcast.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/support/forward_program.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests::cuda::entry_points_test {
namespace {

using codegen::cuda::Entry;
using codegen::cuda::kEntries;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<codegen::LaterJob> waiting;
void wait_in_line(codegen::LaterJob job) { waiting.push_back(std::move(job)); }
void run_waiting() {
  for (const codegen::LaterJob& job : std::exchange(waiting, {})) {
    if (job.is_wanted()) job.run();
  }
}

Names entry_points_in(const std::string& text) {
  Names names;
  for (size_t i = 0; i < kEntries; ++i) {
    const std::string name = name_of(static_cast<Entry>(i));
    if (text.find(") " + name + "(const ") != std::string::npos) names.push_back(name);
  }
  return names;
}

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes); }
at::Tensor unaligned(int64_t numel) { return at::randn({numel + 1}).slice(0, 1); }

Tensors product(const Tensors& x) { return {(x[0] * x[1]).tanh() * x[0] + 0.5}; }
Tensors padded(const Tensors& x) { return {(at::constant_pad_nd(x[0], {2, 3, 1, 0}) * x[1]).tanh()}; }
Tensors softmax(const Tensors& x) { return {at::softmax(x[0] * 2, -1)}; }
Tensors columns(const Tensors& x) {
  const at::Tensor y = x[0].tanh() * x[0];
  return {y, y.sum(0)};
}

struct Case {
  std::string name;
  Function function;
  std::function<Tensors()> inputs;
  Names first;            // compiled first
  Names meanwhile, then;  // launches: with only these, and once the call has what it requested
};
std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

class EntryPoints : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
    at::manual_seed(1);
    waiting.clear();
    take_launched();
  }
  void TearDown() override { waiting.clear(); }
};

TEST_P(EntryPoints, AreCompiledWhenACallAsksForThem) {
  const auto& [name, function, inputs, first, meanwhile, then] = GetParam();
  std::vector<Names> loaded;
  const WithEdit watch([&](std::string text) {
    loaded.push_back(entry_points_in(text));
    return text;
  });
  const Tensors given = inputs(), stock = function(given), truth = function(as(given, at::kDouble));
  const ForwardProgram program(function, given, SizesAre::Constants, wait_in_line);
  EXPECT_THAT(program.left(), IsEmpty());
  EXPECT_THAT(loaded, ElementsAre(first));
  for (int call = 0; call < 2; ++call) {
    expect_near(program.run(given), stock, truth);
    EXPECT_EQ(take_launched(), meanwhile);
  }
  ASSERT_THAT(waiting, SizeIs(meanwhile == then ? 0 : 1)) << "each is asked for once";
  if (waiting.empty()) return;
  run_waiting();
  EXPECT_THAT(loaded, ElementsAre(first, Names{then[0]}));
  expect_near(program.run(given), stock, truth);
  EXPECT_EQ(take_launched(), then);
  EXPECT_THAT(waiting, IsEmpty());
}

const Names kFirst = {"dense_few", "nest_any"}, kFirstOfRows = {"rows", "rows_long_each"},
            kFirstOverRows = {"rows", "rows_long_each", "merge_slices"};

INSTANTIATE_TEST_SUITE_P(OfElements, EntryPoints,
                         testing::Values(Case{"Few",
                                              product,
                                              [] {
                                                return Tensors{random({5000}), random({5000})};
                                              },
                                              kFirst,
                                              {"dense_few"},
                                              {"dense_few"}},
                                         Case{"Many",
                                              product,
                                              [] {
                                                return Tensors{random({70001}), random({70001})};
                                              },
                                              kFirst,
                                              {"dense_few"},
                                              {"dense"}},
                                         Case{"NotAligned",
                                              product,
                                              [] {
                                                return Tensors{unaligned(1023), random({1023})};
                                              },
                                              kFirst,
                                              {"nest_any"},
                                              {"dense_each"}},
                                         Case{"Broadcast",
                                              product,
                                              [] {
                                                return Tensors{random({33, 32}), random({32})};
                                              },
                                              kFirst,
                                              {"nest_any"},
                                              {"nest"}},
                                         Case{"Strided",
                                              product,
                                              [] {
                                                return Tensors{random({9, 66}).slice(1, 0, 66, 2), random({9, 33})};
                                              },
                                              kFirst,
                                              {"nest_any"},
                                              {"nest_each"}},
                                         Case{"Padded",
                                              padded,
                                              [] {
                                                return Tensors{random({10, 31}), random({11, 36})};
                                              },
                                              kFirst,
                                              {"nest_any"},
                                              {"nest_each"}},
                                         Case{"Transposed",
                                              product,
                                              [] {
                                                return Tensors{random({65, 40}).t(), random({40, 65})};
                                              },
                                              kFirst,
                                              {"nest_any"},
                                              {"tiles"}}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(OfRows, EntryPoints,
                         testing::Values(Case{"Short",
                                              softmax,
                                              [] {
                                                return Tensors{random({5, 64})};
                                              },
                                              kFirstOfRows,
                                              {"rows"},
                                              {"rows"}},
                                         Case{"NotAligned",
                                              softmax,
                                              [] {
                                                return Tensors{random({5, 33})};
                                              },
                                              kFirstOfRows,
                                              {"rows_long_each"},
                                              {"rows_each"}},
                                         Case{"InSharedMemory",
                                              softmax,
                                              [] {
                                                return Tensors{random({8, 20000})};
                                              },
                                              kFirstOfRows,
                                              {"rows_long_each"},
                                              {"rows_shared"}},
                                         Case{"InSharedMemoryNotAligned",
                                              softmax,
                                              [] {
                                                return Tensors{random({8, 20001})};
                                              },
                                              kFirstOfRows,
                                              {"rows_long_each"},
                                              {"rows_shared_each"}},
                                         Case{"Long",
                                              softmax,
                                              [] {
                                                return Tensors{random({8, 80000})};
                                              },
                                              kFirstOfRows,
                                              {"rows_long_each"},
                                              {"rows_long"}},
                                         Case{"LongNotAligned",
                                              softmax,
                                              [] {
                                                return Tensors{random({8, 80001})};
                                              },
                                              kFirstOfRows,
                                              {"rows_long_each"},
                                              {"rows_long_each"}},
                                         Case{"OfSeveralBlocks",
                                              softmax,
                                              [] {
                                                return Tensors{random({2, 40000})};
                                              },
                                              kFirstOfRows,
                                              {"rows_long_each"},
                                              Names(2, "rows_split")},
                                         Case{"OfSeveralBlocksNotAligned",
                                              softmax,
                                              [] {
                                                return Tensors{random({2, 20001})};
                                              },
                                              kFirstOfRows,
                                              {"rows_long_each"},
                                              Names(2, "rows_split_each")},
                                         Case{"OverRows",
                                              columns,
                                              [] {
                                                return Tensors{random({5000, 64})};
                                              },
                                              kFirstOverRows,
                                              {"rows", "merge_slices"},
                                              {"rows", "merge_slices"}},
                                         Case{"OverRowsNotAligned",
                                              columns,
                                              [] {
                                                return Tensors{random({333, 33})};
                                              },
                                              kFirstOverRows,
                                              {"rows_long_each", "merge_slices"},
                                              {"rows_each", "merge_slices"}}),
                         [](const auto& info) { return info.param.name; });

class EntryPointsOfAKernel : public EntryPoints {};

TEST_F(EntryPointsOfAKernel, AreAllThereForWhoWantsThemAtOnce) {
  const Tensors given{unaligned(1023), random({1023})};
  const ForwardProgram program(product, given, SizesAre::Constants, wait_in_line);
  program.run(given);
  EXPECT_THAT(take_launched(), ElementsAre("nest_any"));
  const ForwardProgram at_once(product, given);
  at_once.run(given);
  program.run(given);
  EXPECT_THAT(take_launched(), ElementsAre("dense_each", "dense_each")) << "equal bodies have one kernel";
  run_waiting();  // finds it there
}

TEST_F(EntryPointsOfAKernel, AreLoggedAsThoseOfWhoAskedForTheKernel) {
  const LogCapture logs("kernel_code");
  const Tensors given{unaligned(1023), random({1023})};
  {
    const codegen::AskedBy asked_by("a test");
    const ForwardProgram program(product, given, SizesAre::Constants, wait_in_line);
    EXPECT_EQ(logs.count(", for a test"), 1U) << logs.text();
    program.run(given);
    ASSERT_THAT(waiting, SizeIs(1));
    const codegen::AskedBy another("the background");
    run_waiting();
  }
  EXPECT_EQ(logs.count(", for a test"), 2U) << logs.text();
}

TEST_F(EntryPointsOfAKernel, StayAwayIfTheyCannotBeCompiled) {
  const WithEdit refuse([](const std::string& text) {
    if (entry_points_in(text) == Names{"dense_each"}) throw std::runtime_error("refused by the test");
    return text;
  });
  const Tensors given{unaligned(1023), random({1023})};
  const ForwardProgram program(product, given, SizesAre::Constants, wait_in_line);
  for (int call = 0; call < 3; ++call) {
    expect_near(program.run(given), product(given), product(as(given, at::kDouble)));
    EXPECT_THAT(take_launched(), ElementsAre("nest_any"));
    EXPECT_THAT(waiting, SizeIs(call == 0 ? 1 : 0)) << "nobody asks again";
    run_waiting();
  }
}

TEST_F(EntryPointsOfAKernel, AreNotCompiledForAKernelThatIsGone) {
  const Tensors given{unaligned(1023), random({1023})};
  int loads = 0;
  const WithEdit count([&](std::string text) { return ++loads, text; });
  {
    const ForwardProgram program(product, given, SizesAre::Constants, wait_in_line);
    program.run(given);
  }
  ASSERT_THAT(waiting, SizeIs(1));
  EXPECT_FALSE(waiting[0].is_wanted());
  waiting[0].run();
  EXPECT_EQ(loads, 1);
}

// The leaf's gradient is not aligned to 16 bytes, and the kernel adds to it.
TEST_F(EntryPointsOfAKernel, FollowInTheBackgroundOfBackwards) {
  const CostsOfACard costs;
  hindcast::reset();
  Options options;
  options.compiler = compilers::fused();
  const auto guard = hindcast::enable(options);
  const at::Tensor x = random({300}).set_requires_grad(true), y = random({300});
  const std::vector<Names> expected = {{}, {"nest_any"}, {"dense_each"}};
  for (const Names& launched : expected) {
    x.mutable_grad() = at::ones({301}).slice(0, 1);
    const void* const memory = x.grad().const_data_ptr();
    (x * y).tanh().sum().backward();
    const at::Tensor truth = 1 + y * (1 - (x * y).tanh().square());
    EXPECT_TRUE(at::allclose(x.grad(), truth.detach(), 1e-5, 1e-6));
    EXPECT_EQ(x.grad().const_data_ptr(), memory);
    EXPECT_EQ(take_launched(), launched);
    hindcast::wait();
  }
}

}  // namespace
}  // namespace hindcast::tests::cuda::entry_points_test
