// How a card uses the driver, and how it reports the driver's errors.

#include "codegen/cuda/card.h"
#include "codegen/kernel/backend.h"
#include "tests/codegen/cuda/driver/fake_driver.h"
#include "tests/support/machine_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

namespace hindcast::tests {
namespace {

using codegen::cuda::Card;
using codegen::cuda::Driver;
using codegen::cuda::DriverError;
using codegen::cuda::Launch;
using testing::ElementsAre;
using testing::HasSubstr;

c10::Device cuda(int index) { return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)}; }

class CardTest : public testing::Test {
 protected:
  void SetUp() override {
    nvrtc_ = codegen::cuda::Nvrtc::get(&why_not_);
    if (nvrtc_ == nullptr) GTEST_SKIP() << why_not_;
    FakeGuard::current() = 0;
    FakeGuard::stream_id() = 0;
  }
  std::unique_ptr<const Card> open() { return Card::open(driver_, *nvrtc_, &why_not_); }

  FakeDriver fake_;
  const Driver driver_{fake_.functions()};
  const codegen::cuda::Nvrtc* nvrtc_ = nullptr;
  std::string why_not_;
};

TEST_F(CardTest, HasTheLimitsOfTheFirstCard) {
  fake_.attributes = {{1, 512}, {8, 1000}, {16, 7}, {39, 1536}, {82, 70000}, {97, 3000}};
  const auto card = open();
  ASSERT_TRUE(card) << why_not_;
  EXPECT_EQ(card->limits().threads_of_block, 512);
  EXPECT_EQ(card->limits().shared_bytes, 1000);
  EXPECT_EQ(card->limits().most_shared_bytes, 3000);
  EXPECT_EQ(card->limits().multiprocessors, 7);
  EXPECT_EQ(card->limits().registers_of_multiprocessor, 70000);
  EXPECT_EQ(card->limits().threads_of_multiprocessor, 1536);
  EXPECT_EQ(card->device(), c10::kCUDA);
}

TEST_F(CardTest, IdentityHasCompilerArchitectureAndOptions) {
  fake_.cards = {86};
  const std::string identity(open()->identity());
  EXPECT_THAT(identity, HasSubstr(nvrtc_->identity()));
  for (const std::string& option : codegen::cuda::kernel_options(86)) EXPECT_THAT(identity, HasSubstr(option));
  EXPECT_THAT(identity, HasSubstr("=sm_86 "));
}

TEST_F(CardTest, CompilesForAnOlderCardOfTheSameGenerationWhereNvrtcDoesNotKnowThisOne) {
  fake_.cards = {99};
  EXPECT_THAT(std::string(open()->identity()), HasSubstr("=sm_90 "));
  fake_.cards = {70};
  EXPECT_EQ(open(), nullptr);
  EXPECT_THAT(why_not_, HasSubstr("compiles for no card of compute capability 7.0"));
}

TEST_F(CardTest, WithoutADeviceThereIsASentence) {
  fake_.cards = {};
  EXPECT_EQ(open(), nullptr);
  EXPECT_EQ(why_not_, "The NVIDIA driver has no device");
  EXPECT_EQ(Card::open(driver_, *nvrtc_, nullptr), nullptr);
}

TEST_F(CardTest, AnErrorOfTheDriverIsWhyThereIsNone) {
  for (const char* call : {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute"}) {
    fake_.failing = call;
    EXPECT_EQ(open(), nullptr);
    EXPECT_EQ(why_not_, std::string(call) + " failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
  }
}

TEST_F(CardTest, CompilesMachineCodeForItsArchitecture) {
  fake_.cards = {80};
  const auto card = open();
  const std::string text =
      "#include \"codegen/device/ops.h\"\nextern \"C\" __global__ void k(float* x) { *x = hindcast::device::exp(*x); }\n";
  const std::string object = card->compile(text);
  EXPECT_EQ(object.substr(1, 3), "ELF");
  EXPECT_EQ(object, card->compile(text));
  fake_.cards = {90};
  EXPECT_NE(object, open()->compile(text));
}

TEST_F(CardTest, LoadsTheBytesAndFindsFunctionsByTheirNames) {
  const auto card = open();
  const auto module = card->load("object");
  EXPECT_EQ(fake_.count("cuLibraryLoadData object in mode 2"), 1U);
  EXPECT_EQ(module->function("dense"), handle(0xf05));
  EXPECT_EQ(fake_.count("cuLibraryGetKernel dense"), 1U);
  EXPECT_EQ(FakeDriver::capture_mode(), 0);
}

TEST_F(CardTest, AFunctionIsLoadedWhereLibTorchWorksAndNotByItsFirstLaunch) {
  fake_.cards = {90, 90, 86, 90};
  fake_.active = {true, false, true, true};
  const auto card = open();
  FakeDriver::current_context() = handle(0x5e);
  card->load("object")->function("dense");
  EXPECT_EQ(fake_.count("cuKernelGetFunction in context " + std::to_string(0xc0)), 1U);
  EXPECT_EQ(fake_.count("cuKernelGetFunction in context " + std::to_string(0xc3)), 1U);
  const auto calls = fake_.calls();
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(), [](const std::string& call) { return call.starts_with("cuKernelGetFunction"); }), 2);
  EXPECT_EQ(FakeDriver::current_context(), handle(0x5e));
}

TEST_F(CardTest, AKernelMayHaveAllTheSharedMemoryThatItsArraysLeave) {
  fake_.active = {false, false};  // a device that is activated later has it too
  open()->load("object")->function("rows");
  EXPECT_EQ(fake_.count("cuKernelGetAttribute"), 0U);
  open()->load("object")->function("rows_shared");
  const std::string most = std::to_string((227 << 10) - 1000);
  for (const int device : {0, 1})
    EXPECT_EQ(fake_.count("cuKernelSetAttribute 8 to " + most + " on " + std::to_string(FakeDriver::device_of(device))), 1U);
}

TEST_F(CardTest, WhatCannotBeLoadedThrowsWithTheCallsName) {
  const auto card = open();
  fake_.failure = kNoBinary;
  for (const std::string call :
       {"cuLibraryLoadData", "cuLibraryGetKernel", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent",
        "cuCtxSetCurrent", "cuKernelGetFunction", "cuKernelGetAttribute", "cuKernelSetAttribute"}) {
    const auto fresh = open();  // it knows no context yet
    fake_.failing = call;
    try {
      fresh->load("object")->function("rows_shared");
      FAIL() << call;
    } catch (const DriverError& error) {
      EXPECT_THAT(error.what(), HasSubstr(call + " failed"));
      EXPECT_THAT(error.what(), HasSubstr("CUDA_ERROR_NO_BINARY_FOR_GPU (209): no kernel image is available"));
    }
    EXPECT_EQ(FakeDriver::capture_mode(), 0) << call;
    fake_.failing.clear();
  }
}

TEST_F(CardTest, AMissingFunctionIsNamed) {
  const auto card = open();
  const auto module = card->load("object");
  fake_.failing = "cuLibraryGetKernel";
  fake_.failure = kNotFound;
  try {
    module->function("nest");
    FAIL() << "no exception";
  } catch (const DriverError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuLibraryGetKernel failed for nest"));
  }
}

TEST_F(CardTest, ALibraryIsUnloadedWithItsModule) {
  const auto card = open();
  auto module = card->load("object");
  auto holder = module;
  module.reset();
  EXPECT_EQ(fake_.count("cuLibraryUnload"), 0U);
  holder.reset();
  EXPECT_EQ(fake_.count("cuLibraryUnload"), 1U);
  fake_.failing = "cuLibraryLoadData";
  EXPECT_THROW(card->load("object"), DriverError);
  EXPECT_EQ(fake_.count("cuLibraryUnload"), 1U);
}

// The program may launch its graph again after hindcast has dropped the kernel.
TEST_F(CardTest, WhatAGraphOfTheProgramsOwnHasStaysLoaded) {
  const auto card = open();
  const auto launch_of = [&](bool captures) {
    const auto module = card->load("object");
    const int argument = 0;
    fake_.captures = captures;
    card->launch({.function = module->function("dense"), .module = module.get(), .argument = &argument, .device = cuda(1)});
    fake_.captures = false;
    card->launch({.function = module->function("dense"), .module = module.get(), .argument = &argument, .device = cuda(1)});
  };
  launch_of(false);
  EXPECT_EQ(fake_.count("cuLibraryUnload"), 1U);
  launch_of(true);
  EXPECT_EQ(fake_.count("cuLibraryUnload"), 1U);
  // The driver does not tell whether another stream, which this one would wait for, is being captured.
  fake_.failing = "cuStreamIsCapturing";
  launch_of(true);
  EXPECT_EQ(fake_.count("cuLibraryUnload"), 2U);
}

TEST_F(CardTest, AChildUnloadsNothingOfItsParents) {
  const auto card = open();
  auto module = card->load("object");
  const pid_t child = fork();
  if (child == 0) {
    module.reset();
    _exit(fake_.count("cuLibraryUnload") == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CardTest, LaunchesWhatItIsToldOnLibTorchsStream) {
  const auto card = open();
  fake_.argument_bytes = 8;
  FakeGuard::stream_id() = 5;
  const int64_t argument = 0x0807060504030201;
  card->launch({.function = handle(0xf1),
                .grid = {11, 12, 13},
                .block = {21, 22, 23},
                .shared_bytes = 31,
                .argument = &argument,
                .argument_bytes = 8,
                .device = cuda(1)});
  const auto launches = fake_.launches();
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_EQ(launches[0].function, handle(0xf1));
  EXPECT_THAT(launches[0].grid_block_shared, ElementsAre(11, 12, 13, 21, 22, 23, 31));
  EXPECT_EQ(launches[0].stream, FakeGuard::stream_of(1, 5));
  EXPECT_EQ(launches[0].context, FakeDriver::context_of(1));
  EXPECT_EQ(launches[0].argument, "\1\2\3\4\5\6\7\10");
  EXPECT_EQ(fake_.count("cuLaunchKernel"), 1U);  // nothing extra
  EXPECT_EQ(FakeGuard::current(), 0);
}

TEST_F(CardTest, WritesAWordInTheOrderOfLibTorchsStream) {
  const auto card = open();
  FakeGuard::stream_id() = 5;
  EXPECT_TRUE(card->write(cuda(1), handle(0x2008), 77));
  const auto number = [](void* of) { return std::to_string(reinterpret_cast<uintptr_t>(of)); };
  EXPECT_EQ(fake_.count("cuStreamWriteValue64_v2 77 to " + std::to_string(0x2008) + " on " + number(FakeGuard::stream_of(1, 5)) +
                        " in context " + number(FakeDriver::context_of(1))),
            1U);
  EXPECT_EQ(FakeDriver::current_context(), nullptr);
  fake_.failing = "cuStreamWriteValue64_v2";
  EXPECT_THROW(card->write(cuda(1), handle(0x2008), 77), DriverError);
}

TEST_F(CardTest, AThreadWithoutAContextHasThePrimaryOneForTheLaunch) {
  const auto card = open();
  const int argument = 0;
  for (int i = 0; i < 3; ++i) {
    card->launch({.function = handle(1), .argument = &argument, .argument_bytes = 4, .device = cuda(1)});
    EXPECT_EQ(fake_.launches().back().context, FakeDriver::context_of(1));
    EXPECT_EQ(FakeDriver::current_context(), nullptr);
  }
  EXPECT_EQ(fake_.count("cuDevicePrimaryCtxRetain 11"), 1U);
  EXPECT_EQ(fake_.count("cuCtxGetDevice without a context"), 0U);  // which is an error that compute-sanitizer would report
}

TEST_F(CardTest, AContextOfTheDeviceStaysAndOneOfAnotherDeviceIsLeftForTheLaunch) {
  const auto card = open();
  const int argument = 0;
  const Launch launch = {.function = handle(1), .argument = &argument, .argument_bytes = 4, .device = cuda(1)};
  const auto context_of_launch = [&](uintptr_t current) {
    FakeDriver::current_context() = handle(current);
    card->launch(launch);
    EXPECT_EQ(FakeDriver::current_context(), handle(current));
    return fake_.launches().back().context;
  };
  EXPECT_EQ(context_of_launch(0xc1), handle(0xc1));
  EXPECT_EQ(context_of_launch(0xd1), handle(0xd1));  // of LibTorch's green contexts
  EXPECT_EQ(fake_.count("cuCtxSetCurrent"), 0U);
  EXPECT_EQ(context_of_launch(0xc0), handle(0xc1));
  EXPECT_EQ(context_of_launch(0xd0), handle(0xc1));
  EXPECT_EQ(fake_.count("cuCtxSetCurrent"), 4U);
}

TEST_F(CardTest, ACardOfAnotherArchitectureIsRefusedWithASentence) {
  fake_.cards = {90, 86};
  const auto card = open();
  const int argument = 0;
  try {
    card->launch({.function = handle(1), .argument = &argument, .argument_bytes = 4, .device = cuda(1)});
    FAIL() << "no exception";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(),
                 "A kernel cannot run on cuda:1: cuda:1 has compute capability 8.6, and cuda:0 has compute capability 9.0, for which "
                 "kernels are compiled");
  }
  EXPECT_TRUE(fake_.launches().empty());
  EXPECT_EQ(card->why_not_on(cuda(0)), "");
  EXPECT_EQ(card->why_not_on(cuda(2)), "there is no device cuda:2");
  EXPECT_THROW(card->launch({.device = cuda(2)}), Unsupported);
  EXPECT_THROW(card->launch({.device = c10::kCPU}), Unsupported);
}

TEST_F(CardTest, WhatLaunchingMeetsIsThrown) {
  const int argument = 0;
  const Launch launch = {.function = handle(1), .grid = {3}, .block = {64}, .argument = &argument, .argument_bytes = 4, .device = cuda(1)};
  for (const std::string call : {"cuCtxGetCurrent", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuLaunchKernel"}) {
    const auto card = open();
    FakeDriver::current_context() = nullptr;
    fake_.failing = call;
    try {
      card->launch(launch);
      FAIL() << call;
    } catch (const DriverError& error) {
      EXPECT_THAT(error.what(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"));
      const std::string what =
          call == "cuLaunchKernel" ? " for a grid of 3x1x1 blocks of 64x1x1 threads and 0 bytes of shared memory:" : ":";
      EXPECT_THAT(error.what(), HasSubstr(call + " failed" + what));
    }
    EXPECT_EQ(FakeGuard::current(), 0) << call;
    fake_.failing.clear();
  }
}

// Also without kernels: a graph that stays with ATen is measured too.
TEST_F(CardTest, TheBackendSynchronisesLibTorchsCurrentStream) {
  FakeGuard::current() = 1;
  FakeGuard::stream_id() = 5;
  codegen::backend_of(c10::kCUDA)->synchronize();
  EXPECT_EQ(FakeGuard::synchronised(), 105);
}

}  // namespace
}  // namespace hindcast::tests
