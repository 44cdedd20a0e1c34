// How a recording of a card uses LibTorch's graphs and the driver.

#include "codegen/cuda/card.h"
#include "codegen/cuda/card_recording.h"
#include "codegen/cuda/graph_library.h"
#include "tests/codegen/cuda/driver/fake_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace hindcast::tests {
namespace {

using codegen::MovedMemory;
using codegen::cuda::Card;
using codegen::cuda::CardRecording;
using codegen::cuda::Driver;
using codegen::cuda::Launch;
using codegen::cuda::Memory;

int launched = 0;

class FakeCapture final : public codegen::cuda::CapturedGraph {
 public:
  void launch() override { ++launched; }
  void* executable() const override { return handle(0xe0); }
  size_t bytes() const override { return 4096; }
};

const codegen::cuda::CudaGraphsTable kGraphs = {codegen::cuda::kCudaGraphsVersion,
                                                [](c10::DeviceIndex, c10::function_ref<void()> give) {
                                                  give();
                                                  return std::unique_ptr<codegen::cuda::CapturedGraph>(new FakeCapture);
                                                },
                                                [] {}};

class RecordingOfACard : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const nvrtc = codegen::cuda::Nvrtc::get(&why_not_);
    if (nvrtc == nullptr) GTEST_SKIP() << why_not_;
    FakeGuard::current() = 0;
    FakeGuard::stream_id() = 0;
    card_ = Card::open(driver_, *nvrtc, &why_not_);
    ASSERT_TRUE(card_) << why_not_;
    fake_.argument_bytes = sizeof(Argument);
    launched = 0;
  }

  struct Argument {
    const void *read, *written;
    int64_t size;
  };
  void launch(const void* read, const void* written, int64_t size) const {
    const Argument argument{read, written, size};
    const uint16_t pointers[] = {0, 1};
    const Memory memory[] = {{read_, sizeof(read_), true}, {written_, sizeof(written_), false}};
    card_->launch({.function = handle(0xf00),
                   .argument = &argument,
                   .argument_bytes = sizeof(argument),
                   .pointers = pointers,
                   .leads_outside = leads_outside_,
                   .device = {c10::kCUDA, 0},
                   .memory = memory});
  }
  std::unique_ptr<CardRecording> record(c10::function_ref<void()> give) const {
    return std::make_unique<CardRecording>(*card_, kGraphs, 0, give);
  }
  static std::string bytes_of(const Argument& argument) { return {reinterpret_cast<const char*>(&argument), sizeof(argument)}; }

  FakeDriver fake_;
  const Driver driver_{fake_.functions()};
  std::unique_ptr<const Card> card_;
  std::string why_not_;
  bool leads_outside_ = false;
  alignas(64) char read_[64] = {}, written_[64] = {}, elsewhere_[128] = {};
};

TEST_F(RecordingOfACard, IsLaunchedAsOften) {
  const auto recording = record([&] { launch(read_, written_, 4); });
  EXPECT_EQ(launched, 0);
  recording->launch();
  recording->launch();
  EXPECT_EQ(launched, 2);
  EXPECT_EQ(recording->bytes(), 4096U);
}

// A recording holds the kernels that it launches.
TEST_F(RecordingOfACard, KeepsNoCodeBeyondItsOwnEnd) {
  fake_.captures = true;
  auto module = card_->load("object");
  record([&] {
    const Argument argument{read_, written_, 4};
    card_->launch({.function = module->function("dense"),
                   .module = module.get(),
                   .argument = &argument,
                   .argument_bytes = sizeof(argument),
                   .device = {c10::kCUDA, 0}});
  });
  module.reset();
  EXPECT_EQ(fake_.count("cuLibraryUnload"), 1U);
}

TEST_F(RecordingOfACard, WantsToKnowMemoryWhileItIsMade) {
  EXPECT_FALSE(card_->wants_memory());
  record([&] { EXPECT_TRUE(card_->wants_memory()); });
  EXPECT_FALSE(card_->wants_memory());
  EXPECT_THROW(record([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_FALSE(card_->wants_memory());
}

// A number that looks like an address is not updated.
TEST_F(RecordingOfACard, TellsKernelsOfMovedMemory) {
  const auto number = static_cast<int64_t>(reinterpret_cast<uintptr_t>(read_));
  const auto recording = record([&] {
    launch(read_ + 8, written_, number);
    launch(written_, written_ + 16, 4);
    launch(nullptr, read_, 4);
  });
  EXPECT_TRUE(recording->move(MovedMemory{read_, elsewhere_ + 16, sizeof(read_)}));
  const auto updates = fake_.updates();
  ASSERT_EQ(updates.size(), 2U);
  EXPECT_EQ(updates[0].context, FakeDriver::context_of(0));  // this thread has none
  EXPECT_EQ(updates[0].executable, handle(0xe0));
  EXPECT_EQ(updates[0].node, FakeDriver::node_of(0));
  EXPECT_EQ(updates[0].argument, bytes_of({elsewhere_ + 24, written_, number}));
  EXPECT_EQ(updates[1].node, FakeDriver::node_of(2));
  EXPECT_EQ(updates[1].argument, bytes_of({nullptr, elsewhere_ + 16, 4}));
  EXPECT_TRUE(recording->move(MovedMemory{elsewhere_ + 16, read_, sizeof(read_)}));
  ASSERT_EQ(fake_.updates().size(), 4U);
  EXPECT_EQ(fake_.updates()[2].argument, bytes_of({read_ + 8, written_, number}));
}

TEST_F(RecordingOfACard, MovesNothingToAnotherAlignment) {
  const auto recording = record([&] { launch(read_, written_, 4); });
  EXPECT_FALSE(recording->move(MovedMemory{read_, elsewhere_ + 8, sizeof(read_)}));
}

// As when the zeros around a tensor are counted in: the pointer may lie within another tensor.
TEST_F(RecordingOfACard, MovesNothingWhereAPointerIsToLeadOutside) {
  leads_outside_ = true;
  const auto recording = record([&] { launch(read_, written_, 4); });
  EXPECT_FALSE(recording->move(MovedMemory{read_, elsewhere_, 16}));
}

TEST_F(RecordingOfACard, MovesNothingWhereAPointerLeadsNowhere) {
  const auto recording = record([&] { launch(elsewhere_ + 100, written_, 4); });
  EXPECT_FALSE(recording->move(MovedMemory{read_, elsewhere_, 16}));
}

TEST_F(RecordingOfACard, AnErrorOfTheDriverIsThrown) {
  fake_.failing = "cuStreamGetCaptureInfo_v2";
  EXPECT_THROW(record([&] { launch(read_, written_, 4); }), codegen::cuda::DriverError);
  fake_.failing = "";
  const auto recording = record([&] { launch(read_, written_, 4); });
  fake_.failing = "cuGraphExecKernelNodeSetParams_v2";
  EXPECT_THROW(recording->move(MovedMemory{read_, elsewhere_, sizeof(read_)}), codegen::cuda::DriverError);
}

// Its symbols come from LibTorch's part for CUDA, which loads without a card.
TEST(GraphLibrary, IsLoadedBesideLibTorchsPartForCuda) {
#ifndef HINDCAST_HAS_CUDA_GRAPHS
  GTEST_SKIP() << "it was not built";
#endif
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Started by its path: the library is looked for next to it.
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    execl(self.c_str(), self.c_str(), "--gtest_also_run_disabled_tests", "--gtest_filter=GraphLibrary.DISABLED_InTheChild", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(GraphLibrary, DISABLED_InTheChild) {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) GTEST_SKIP() << "LibTorch has no part for CUDA: " << dlerror();
  std::string why_not;
  EXPECT_NE(codegen::cuda::graph_library(&why_not), nullptr) << why_not;
}

}  // namespace
}  // namespace hindcast::tests
