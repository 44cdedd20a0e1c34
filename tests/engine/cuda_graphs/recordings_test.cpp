// Backwards that are replayed as CUDA graphs: the same gradients as step by step, to the bit, whatever happens to memory in between; and
// the device never reads memory before it is written, or after it belongs to somebody else.

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <atomic>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "codegen/cuda/kernels.h"
#include "engine/cuda_graphs/recorded_region.h"
#include "engine/cuda_graphs/recordings.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/engine/cuda_graphs/fake_card.h"
#include "tests/gpu/programs/recorded_programs.h"
#include "tests/support/log_capture.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests::recordings_test {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

const std::vector<std::string> kNothing;

Options requiring(Options options) {
  options.require_cuda_graph = true;
  return options;
}

/// What the steps throw; empty: nothing.
std::string error_of(const RecordedStep& step, const Options& options, int steps = 9) {
  try {
    run_recorded(step, options, steps);
  } catch (const std::runtime_error& thrown) {
    return thrown.what();
  }
  return "";
}

/// Two layers, with this many sets of sizes in turn.
RecordedStep sizes_in_turn(int count) {
  return [count, w = leaf(1, fake(), {8, 16}), v = leaf(2, fake(), {16, 4})](int step) {
    for (const Tensor& one : {w, v}) one.mutable_grad().reset();
    const Tensor x = leaf(10, fake(), {2 + step % count, 8}).detach();
    at::mm((at::mm(x, w).tanh() * 2).sin(), v).tanh().sum().backward();
    return Tensors{w.grad(), v.grad()};
  };
}

/// Freed memory is reused, as on a card, unless a test holds it.
class Recordings : public ::testing::Test {
 protected:
  void SetUp() override { install_fake_card(); }
  void TearDown() override {
    EXPECT_EQ(take_unordered(), kNothing);
    reset();
    EXPECT_EQ(stats().cuda_graph_bytes, 0U);
    EXPECT_EQ(take_graph_errors(), kNothing);
  }
  static Stats expect_same(const RecordedProgram& program, const Options& options = with_graphs()) {
    synchronize_fake_device();
    take_unordered();
    return expect_as_without_graphs(program, fake(), options);
  }

  const RecordedProgram whole_ = recorded_program("WholeBackward");
  const uint64_t launches_ = launches_in(whole_.steps);

 private:
  const CachedFakeMemory cached_;
};

std::vector<codegen::LaterJob> jobs_later;

// Else the graph would keep the entry points that they replace.
TEST_F(Recordings, WaitForEntryPointsThatCallsAskedFor) {
  codegen::Body body{.loads = {{at::kFloat}}, .ops = {{"neg", {{codegen::Operand::Kind::Load, 0}}}}};
  body.stores.push_back({{codegen::Operand::Kind::Result, 0}, at::kFloat, codegen::Extent::Element});
  std::string why_not;
  const auto kernel = codegen::cuda::kernel_of(
      body, [](codegen::LaterJob job) { jobs_later.push_back(std::move(job)); }, why_not);
  ASSERT_TRUE(kernel) << why_not;
  ASSERT_FALSE(kernel->has_or_asks_for(codegen::cuda::Entry::Tiles));
  ASSERT_EQ(jobs_later.size(), 1U);
  const RecordedStep step = whole_.make(fake());
  run_recorded(step, with_graphs(), whole_.steps);
  EXPECT_EQ(stats().cuda_graphs, 0U);
  jobs_later.clear();
  EXPECT_EQ(error_of(step, requiring(with_graphs())), "");
  EXPECT_GE(stats().cuda_graphs, 1U);
}

class RecordedPrograms : public Recordings, public testing::WithParamInterface<RecordedProgram> {};

TEST_P(RecordedPrograms, AreAsWithoutGraphs) {
  const uint64_t moved = moved_launches();
  const Stats counts = expect_same(GetParam());
  EXPECT_GE(counts.cuda_graphs, GetParam().parts) << counts;
  if (GetParam().name == "ALargeInputOfKernels" || GetParam().name == "ALargeInputOfANormsKernels") {
    EXPECT_GT(moved_launches(), moved);
  }
  if (GetParam().name == "SomeSizes") {
    EXPECT_GE(counts.cuda_graphs, 3U) << counts;
    EXPECT_GT(counts.cuda_graph_launches, 10U);
  } else {
    EXPECT_EQ(counts.cuda_graph_launches, GetParam().parts * launches_in(GetParam().steps - GetParam().lost_steps)) << counts;
  }
  EXPECT_EQ(counts.without_cuda_graph.empty(), GetParam().why_not.empty()) << counts;
  for (const auto& [reason, count] : counts.without_cuda_graph) EXPECT_NE(reason.find(GetParam().why_not), std::string::npos) << reason;
}

INSTANTIATE_TEST_SUITE_P(All, RecordedPrograms, testing::ValuesIn(recorded_programs()),
                         [](const testing::TestParamInfo<RecordedProgram>& info) { return info.param.name; });

// These programs' graphs are recorded once and launched from then on.
TEST_F(Recordings, AreMadeOnce) {
  for (const char* name : {"WholeBackward", "GradientsThatAreThere", "MovingInputs", "ALargeInputOfKernels"}) {
    EXPECT_EQ(expect_same(recorded_program(name)).cuda_graphs, 1U) << name;
  }
  EXPECT_EQ(expect_same(recorded_program("AnInputThatBeginsToMove")).cuda_graphs, 2U);
}

TEST_F(Recordings, VersionsOfGradientsMoveAsTheyDo) {
  std::vector<int64_t> versions[2];
  for (const bool records : {false, true}) {
    const RecordedStep step = recorded_program("GradientsThatAreThere").make(fake());
    const auto noting = [&](int i) {
      for (const Tensor& grad : step(i)) versions[records].push_back(grad._version());
      return Tensors();
    };
    run_recorded(noting, records ? with_graphs() : without_graphs(), 9);
  }
  EXPECT_EQ(versions[0], versions[1]);
}

TEST_F(Recordings, OnAnotherStreamEachTime) {
  RecordedProgram program = whole_;
  program.make = [this](c10::Device device) {
    return [step = whole_.make(device)](int i) {
      const c10::Stream mine = stream(1 + i % 2);
      order(stream(0), mine);
      Tensors seen;
      {
        const c10::StreamGuard guard(mine);
        seen = step(i);
      }
      order(mine, stream(0));
      return seen;
    };
  };
  EXPECT_EQ(expect_same(program).cuda_graph_launches, launches_);
}

TEST_F(Recordings, AFailedCaptureIsRunStepByStep) {
  const FailingCaptures fail;
  const Stats counts = expect_same(whole_);
  EXPECT_EQ(counts.cuda_graph_launches, 0U);
  EXPECT_EQ(counts.without_cuda_graph.size(), 1U) << counts;
}

TEST_F(Recordings, ACaptureThatFailsTwiceIsTriedAgain) {
  RecordedProgram program = whole_;
  program.make = [this](c10::Device device) {
    return [step = whole_.make(device)](int i) {
      const auto fails = i < 6 ? std::make_unique<FailingCaptures>() : nullptr;
      return step(i);
    };
  };
  const Stats counts = expect_same(program);
  EXPECT_EQ(counts.cuda_graph_launches, launches_ - 2) << counts;
  EXPECT_TRUE(counts.without_cuda_graph.empty()) << counts;
}

TEST_F(Recordings, WhereADeviceHasNoneTheReasonIsCounted) {
  const WithoutRecordings none("there is no library for it");
  const Stats counts = expect_same(whole_);
  EXPECT_EQ(counts.cuda_graphs, 0U);
  EXPECT_TRUE(counts.without_cuda_graph.contains("there is no library for it")) << counts;
  EXPECT_NE(error_of(whole_.make(fake()), requiring(with_graphs())).find("there is no library for it"), std::string::npos);
}

TEST_F(Recordings, NothingIsRecordedWhileTheProgramRecords) {
  {
    const ProgramRecords records;
    EXPECT_EQ(expect_same(whole_).cuda_graphs, 0U);
    EXPECT_EQ(expect_same(whole_, requiring(with_graphs())).cuda_graphs, 0U) << "a later step may be a graph: no error";
  }
  EXPECT_EQ(expect_same(whole_, requiring(with_graphs())).cuda_graphs, 1U);
}

TEST_F(Recordings, WhereNoKernelCanBeToldOfAnAddressTheyAreMadeAgain) {
  const FailingMoves fail;
  const Stats counts = expect_same(recorded_program("ALargeInputOfKernels"));
  EXPECT_EQ(counts.cuda_graphs, engine::kMostMisfits) << counts;
  EXPECT_EQ(counts.without_cuda_graph.size(), 1U);
}

TEST_F(Recordings, NothingIsKeptAfterReset) {
  const int64_t before = fake_bytes_in_use();
  EXPECT_GT(expect_same(whole_).cuda_graph_bytes, 0U);
  reset();
  EXPECT_EQ(fake_bytes_in_use(), before);
}

TEST_F(Recordings, TrimGivesTheirMemoryBack) {
  const RecordedStep step = whole_.make(fake());
  const auto trimming = [&](int i) {
    if (i == 6) {
      EXPECT_GT(trim(), 0U);
      EXPECT_EQ(stats().cuda_graph_bytes, 0U);
    }
    return step(i);
  };
  run_recorded(trimming, with_graphs(), 9);
  EXPECT_EQ(stats().cuda_graphs, 2U);
  EXPECT_EQ(stats().cuda_graph_launches, launches_);
}

TEST_F(Recordings, MemoryIsBounded) {
  Options options = with_graphs();
  options.cuda_graph_bytes = 64;
  const Stats counts = expect_same(whole_, options);
  EXPECT_EQ(counts.cuda_graph_bytes, 0U);
  ASSERT_EQ(counts.without_cuda_graph.size(), 1U);
  EXPECT_NE(counts.without_cuda_graph.begin()->first.find("Options::cuda_graph_bytes"), std::string::npos);
}

TEST_F(Recordings, TheOldestGoFirst) {
  RecordedProgram two{.name = "two", .steps = 18};
  two.make = [this](c10::Device device) {
    return [first = whole_.make(device), second = recorded_program("ExpandedGradients").make(device)](int i) {
      return i < 9 ? first(i) : second(i);
    };
  };
  RecordedProgram in_turn = two;
  in_turn.make = [this](c10::Device device) {
    return [first = whole_.make(device), second = recorded_program("ExpandedGradients").make(device)](int i) {
      return i % 2 == 0 ? first(i) : second(i);
    };
  };
  Options options = with_graphs();
  const size_t of_first = expect_same(whole_).cuda_graph_bytes, of_both = expect_same(two).cuda_graph_bytes;
  ASSERT_GT(of_both, of_first);
  options.cuda_graph_bytes = of_both - 1;
  const Stats counts = expect_same(two, options);
  EXPECT_EQ(counts.cuda_graphs, 2U) << counts;
  EXPECT_EQ(counts.cuda_graph_bytes, of_both - of_first);
  EXPECT_TRUE(counts.without_cuda_graph.empty());
  // One of two that are in use stays.
  const Stats turns = expect_same(in_turn, options);
  EXPECT_EQ(turns.cuda_graphs, 2U) << turns;
  EXPECT_EQ(turns.without_cuda_graph.size(), 1U) << turns;
  EXPECT_GT(turns.cuda_graph_bytes, 0U);
}

TEST_F(Recordings, RequiredOnesThrowWhereThereCanBeNone) {
  EXPECT_EQ(expect_same(whole_, requiring(with_graphs())).cuda_graph_launches, launches_);
  const std::string error = error_of(recorded_program("Hooks").make(fake()), requiring(with_graphs()));
  EXPECT_NE(error.find("Options::require_cuda_graph"), std::string::npos) << error;
  EXPECT_NE(error.find("user code may have changed it"), std::string::npos) << error;
}

TEST_F(Recordings, MoreSizesThanHaveGraphsAreAnError) {
  constexpr int kMost = engine::kMostRecordedSizes;
  const std::string reason = "its sizes change from step to step";
  for (const int count : {kMost, kMost + 1}) {
    run_recorded(sizes_in_turn(count), with_graphs(), 8 * count);
    EXPECT_EQ(stats().cuda_graphs >= engine::kMostRecordedSizes, count == kMost) << stats();
    EXPECT_EQ(stats().without_cuda_graph.contains(reason), count > kMost) << stats();
    const std::string error = error_of(sizes_in_turn(count), requiring(with_graphs()), 8 * count);
    EXPECT_EQ(error.find(reason) != std::string::npos, count > kMost) << error;
  }
}

TEST_F(Recordings, AStartWithManySizesIsNoError) {
  constexpr int kSizes = engine::kMostRecordedSizes + 3;
  const auto settles = [of_sizes = sizes_in_turn(kSizes)](int step) { return of_sizes(step < kSizes ? step : kSizes); };
  EXPECT_EQ(error_of(settles, requiring(with_graphs()), 20), "");
  EXPECT_GT(stats().cuda_graph_launches, 0U) << stats();
  EXPECT_TRUE(stats().without_cuda_graph.empty()) << stats();
}

TEST_F(Recordings, KernelsThatCannotBeCompiledAreAnError) {
  const cuda::WithEdit refuse([](const std::string&) -> std::string { throw std::runtime_error("refused by the test"); });
  for (const bool async : {false, true}) {
    Options options = with_graphs();
    options.async = async;
    const LogCapture logs("compiled_autograd");
    const auto step = [inner = whole_.make(fake())](int i) {
      if (i == 2) wait();
      return inner(i);
    };
    const std::string error = error_of(step, requiring(options));
    EXPECT_NE(error.find("it runs op by op, as it was captured"), std::string::npos) << error;
  }
}

/// What prevents a backward from being recorded while it lasts, whatever its steps are.
struct Obstacle {
  std::string name;
  std::function<void(Options&)> add;
  std::string why;
  std::string logs = {};
};

class ObstaclesToRecordings : public Recordings, public testing::WithParamInterface<Obstacle> {
 protected:
  Options options_ = with_graphs();
};

TEST_P(ObstaclesToRecordings, AreCountedOnceAndAreAnErrorWhereAGraphIsRequired) {
  GetParam().add(options_);
  const LogCapture logs(GetParam().logs);
  run_recorded(whole_.make(fake()), options_, 9);
  EXPECT_EQ(stats().cuda_graph_launches, 0U);
  EXPECT_EQ(stats().without_cuda_graph, (std::map<std::string, uint64_t>{{GetParam().why, 1}}));
  const std::string error = error_of(whole_.make(fake()), requiring(options_));
  EXPECT_NE(error.find("Options::require_cuda_graph: graph 0 "), std::string::npos) << error;
  EXPECT_NE(error.find(GetParam().why), std::string::npos) << error;
}

std::vector<Obstacle> obstacles() {
  static std::ostringstream printed;
  return {
      {"NanGuard", [](Options& options) { options.nan_guard = true; }, "Options::nan_guard looks at each gradient"},
      {"OpByOp", [](Options& options) { options.compiler = compilers::eager(); }, "compilers::eager() runs it op by op"},
      {"ACompilerOfTheUsers", [](Options& options) { options.compiler = compilers::print(printed); }, "Options::compiler runs it"},
      {"EqualBits", [](Options& options) { options.deterministic = true; }, "equal bits are asked for, so that it runs op by op"},
      {"TheLogPerf", [](Options&) {}, "each step is timed, for the log perf or for a trace", "perf"},
  };
}

TEST_F(Recordings, SeveralStreamsAreAnErrorWhereAGraphIsRequired) {
  const RecordedStep step = [w = leaf(1, fake(), {8, 8})](int i) {
    w.mutable_grad().reset();
    const c10::Stream current = stream(0), side = stream(1);
    const auto after = [&](const c10::Stream& first, const c10::Stream& then) {
      c10::Event event(fake().type());
      event.record(first);
      then.wait(event);
    };
    const Tensor x = leaf(10 + i, fake(), {8, 8}).detach();
    after(current, side);
    Tensor y;
    {
      const c10::StreamGuard on_side(side);
      y = at::mm(x, w).tanh();
    }
    after(side, current);
    c10::impl::VirtualGuardImpl(fake().type()).recordDataPtrOnStream(y.storage().data_ptr(), current);
    (y * 2).sin().sum().backward();
    return Tensors{w.grad()};
  };
  const std::string error = error_of(step, requiring(with_graphs()));
  EXPECT_NE(error.find("its nodes have several streams"), std::string::npos) << error;
  reset();
  run_recorded(step, with_graphs(), 9);
  EXPECT_EQ(stats().without_cuda_graph, (std::map<std::string, uint64_t>{{"its nodes have several streams", 1}}));
}

INSTANTIATE_TEST_SUITE_P(All, ObstaclesToRecordings, testing::ValuesIn(obstacles()),
                         [](const testing::TestParamInfo<Obstacle>& info) { return info.param.name; });

TEST_F(Recordings, TheyGoOnBehindALogThatTimesSteps) {
  const RecordedStep step = whole_.make(fake());
  const auto logged_at_first = [&](int i) {
    const LogCapture logs(i < 3 ? "perf" : "");
    return step(i);
  };
  run_recorded(logged_at_first, with_graphs(), 12);
  EXPECT_EQ(stats().cuda_graphs, 1U) << stats();
  EXPECT_GT(stats().cuda_graph_launches, 0U);
}

TEST_F(Recordings, NoStepIsTimedWhileTheProgramCaptures) {
  const RecordedStep step = whole_.make(fake());
  const LogCapture logs("perf");
  const auto guard = enable(without_graphs());
  step(0);
  {
    const ProgramRecords records;
    step(1);
    EXPECT_EQ(logs.count(" KiB in "), 0U) << logs.text();
  }
  step(2);
  EXPECT_GT(logs.count(" KiB in "), 0U) << logs.text();
}

// Only one of them at a time runs the graph; the other runs step by step.
TEST_F(Recordings, TwoThreadsUseOne) {
  constexpr int kSteps = 40;
  const auto steps_of = [&] { return recorded_program("ResultsOfGrad").make(fake()); };
  const auto expected = run_recorded(steps_of(), without_graphs(), kSteps);
  reset();
  run_recorded(steps_of(), with_graphs(), 1);
  std::atomic<int> wrong = 0;
  const auto run = [&] {
    const auto guard = enable(with_graphs());
    const RecordedStep step = steps_of();
    for (int i = 0; i < kSteps; ++i) {
      const Tensors seen = step(i);
      // The first step of a run without graphs was a capture, and rounds as ATen does.
      for (size_t j = 2; j < seen.size(); ++j) {
        wrong += first_difference(expected[static_cast<size_t>(i)][j], seen[j].detach().to(at::kCPU)).empty() ? 0 : 1;
      }
    }
  };
  std::thread one(run), other(run);
  one.join();
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(stats().cuda_graph_launches, 0U) << stats();
}

/// One more step in a thread of its own.
void step_on_a_new_thread(const RecordedStep& step, int i) {
  std::thread([&] {
    const auto guard = enable(with_graphs());
    step(i);
  }).join();
}

// LibTorch's libraries initialize for a thread when an op first uses them there, which fails during a capture.
TEST_F(Recordings, AThreadRunsTheStepsBeforeItRecordsThem) {
  const RecordedStep step = recorded_program("ResultsOfGrad").make(fake());
  for (int i = 0; i < 10; ++i) step_on_a_new_thread(step, i);
  EXPECT_EQ(stats().cuda_graphs, 0U) << stats();
  std::thread([&] {
    const auto guard = enable(with_graphs());
    step(10);
    EXPECT_EQ(stats().cuda_graphs, 0U) << stats();
    step(11);
  }).join();
  EXPECT_EQ(stats().cuda_graphs, 1U) << stats();
  const uint64_t launches = stats().cuda_graph_launches;
  step_on_a_new_thread(step, 12);  // a launch asks no library
  EXPECT_EQ(stats().cuda_graph_launches, launches + 1) << stats();
}

TEST_F(Recordings, AThreadThatComesBackIsReasonEnoughToGoOn) {
  const RecordedStep step = recorded_program("ResultsOfGrad").make(fake());
  int i = 0;
  const auto steps_here = [&] {
    const auto guard = enable(with_graphs());
    for (int n = 0; n < 3; ++n) step(i++);  // a capture; a new thread; the same thread again
  };
  steps_here();
  for (int n = 0; n < 63; ++n) step_on_a_new_thread(step, i++);
  EXPECT_EQ(stats().cuda_graphs, 0U) << stats();
  steps_here();
  EXPECT_EQ(stats().cuda_graphs, 1U) << stats();
}

TEST_F(Recordings, WhereEachStepHasAThreadOfItsOwnThereAreNone) {
  const RecordedStep step = recorded_program("ResultsOfGrad").make(fake());
  for (int i = 0; i < 70; ++i) step_on_a_new_thread(step, i);
  EXPECT_EQ(stats().cuda_graphs, 0U) << stats();
  EXPECT_EQ(stats().without_cuda_graph.count("each of its steps has a thread of its own"), 1U) << stats();
}

}  // namespace
}  // namespace hindcast::tests::recordings_test
