// Kernels run through NVRTC, the driver and a card, and give the right numbers.

#include "tests/gpu/on_gpu.h"
#include "tests/support/machine_code.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

namespace hindcast::tests {
namespace {

using at::Tensor;
using codegen::cuda::DriverError;
using codegen::cuda::Launch;
using codegen::cuda::Module;

constexpr int kThreads = 256;

struct Arguments {
  const float* in;
  float* out;
  long long count;
};

const char* const kText =
    "struct Arguments { const float* in; float* out; long long count; };\n"
    "extern \"C\" __global__ void __launch_bounds__(256) twice_plus_one(Arguments all) {\n"
    "  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < all.count) all.out[i] = 2 * all.in[i] + 1;\n"
    "}\n"
    // Like twice_plus_one, some tens of milliseconds late.
    "extern \"C\" __global__ void __launch_bounds__(256) late(Arguments all) {\n"
    "  const long long start = clock64();\n"
    "  while (clock64() - start < 100000000) {}\n"
    "  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < all.count) all.out[i] = 2 * all.in[i] + 1;\n"
    "}\n";

const std::string& object() {
  static const std::string bytes = card().compile(kText);
  return bytes;
}

/// On LibTorch's current stream.
void run(const Module& module, const char* name, const Tensor& in, const Tensor& out) {
  const Arguments arguments = {in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), in.numel()};
  card().launch({.function = module.function(name),
                 .module = &module,
                 .grid = {static_cast<uint32_t>((in.numel() + kThreads - 1) / kThreads)},
                 .block = {kThreads},
                 .argument = &arguments,
                 .argument_bytes = sizeof(arguments),
                 .device = in.device()});
}

/// The calls of a program that captures graphs itself.
struct Graphs {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*begin)(void*, int) = function<int(void*, int)>("cuStreamBeginCapture_v2");
  int (*end)(void*, void**) = function<int(void*, void**)>("cuStreamEndCapture");
  int (*instantiate)(void**, void*, unsigned long long) = function<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags");
  int (*launch)(void*, void*) = function<int(void*, void*)>("cuGraphLaunch");
  int (*destroy_executable)(void*) = function<int(void*)>("cuGraphExecDestroy");
  int (*destroy)(void*) = function<int(void*)>("cuGraphDestroy");

 private:
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(driver, name));
  }
};

Tensor numbers(int64_t count) { return at::randn({count}, at::kCUDA); }
bool is_right(const Tensor& in, const Tensor& out) { return at::equal(out.cpu(), 2 * in.cpu() + 1); }

using GpuCard = OnGpu;
/// Calls that the driver refuses: a sanitizer would report them.
using GpuCardErrors = OnGpu;

TEST_F(GpuCard, RunsAKernel) {
  const auto module = card().load(object());
  for (const int64_t count : {1, 255, 256, 100003}) {
    const Tensor in = numbers(count), out = at::full_like(in, -1);
    run(*module, "twice_plus_one", in, out);
    EXPECT_TRUE(is_right(in, out)) << count;
  }
}

TEST_F(GpuCard, HasLimits) {
  EXPECT_GT(card().limits().multiprocessors, 10);
  EXPECT_GE(card().limits().threads_of_multiprocessor, 1024);
  EXPECT_EQ(card().limits().threads_of_block, 1024);
  EXPECT_GE(card().limits().shared_bytes, 48 << 10);
  RecordProperty("identity", std::string(card().identity()));
  EXPECT_EQ(card().why_not_on({c10::kCUDA, 0}), "");
}

TEST_F(GpuCard, AThreadThatHasNotUsedCudaMayLaunch) {
  const auto module = card().load(object());
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  std::thread([&] {
    run(*module, "twice_plus_one", in, out);
    synchronize();
  }).join();
  EXPECT_TRUE(is_right(in, out));
}

TEST_F(GpuCard, ManyThreadsLaunchOnStreamsOfTheirOwn) {
  const auto module = card().load(object());
  std::vector<std::thread> threads;
  std::vector<Tensor> in, out;
  for (int i = 0; i < 8; ++i) {
    in.push_back(numbers(10000 + i));
    out.push_back(at::full_like(in.back(), -1));
  }
  synchronize();  // the other streams do not wait for this one
  for (size_t i = 0; i < in.size(); ++i) {
    threads.emplace_back([&, i] {
      const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
      const c10::StreamGuard stream(guard.getStreamFromGlobalPool(in[i].device()));
      for (int repeat = 0; repeat < 20; ++repeat) run(*module, "twice_plus_one", in[i], out[i]);
      synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < in.size(); ++i) EXPECT_TRUE(is_right(in[i], out[i])) << i;
}

// On another stream the reader would not wait for the late writer.
TEST_F(GpuCard, KernelsRunInTheOrderOfLibTorchsStream) {
  const auto module = card().load(object());
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  synchronize();
  const c10::StreamGuard stream(guard.getStreamFromGlobalPool(in.device()));
  run(*module, "late", in, out);
  const Tensor copy = out.clone();
  EXPECT_TRUE(is_right(in, copy));
}

TEST_F(GpuCard, AModuleMayGoWhileItsKernelRuns) {
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  auto module = card().load(object());
  run(*module, "late", in, out);
  module.reset();
  synchronize();
  EXPECT_TRUE(is_right(in, out));
}

TEST_F(GpuCard, ALaunchReturnsBeforeItsKernelHasRun) {
  const auto module = card().load(object());
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  synchronize();
  run(*module, "late", in, out);
  EXPECT_FALSE(guard.queryStream(guard.getStream(in.device())));
  synchronize();
  EXPECT_TRUE(guard.queryStream(guard.getStream(in.device())));
  EXPECT_TRUE(is_right(in, out));
}

// A capture in the strictest mode forbids loads to all threads.
TEST_F(GpuCard, LoadingDisturbsNoCaptureOfAnotherThread) {
  const Graphs graphs;
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const c10::Stream stream = guard.getStreamFromGlobalPool({c10::kCUDA, 0});
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  synchronize();
  object();
  ASSERT_EQ(graphs.begin(stream.native_handle(), 0), 0);
  std::string problem;
  std::thread([&] {
    try {
      auto module = card().load(object());
      module->function("twice_plus_one");
      module.reset();
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }).join();
  void* graph = nullptr;
  EXPECT_EQ(graphs.end(stream.native_handle(), &graph), 0);
  EXPECT_EQ(problem, "");
  if (graph != nullptr) graphs.destroy(graph);
}

TEST_F(GpuCard, AGraphOfTheProgramsOwnOutlivesTheModule) {
  const Graphs graphs;
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  synchronize();
  const c10::StreamGuard stream(guard.getStreamFromGlobalPool(in.device()));
  void* const handle = stream.current_stream().native_handle();
  auto module = card().load(object());
  ASSERT_EQ(graphs.begin(handle, 2), 0);
  run(*module, "twice_plus_one", in, out);
  void *graph = nullptr, *executable = nullptr;
  ASSERT_EQ(graphs.end(handle, &graph), 0);
  ASSERT_EQ(graphs.instantiate(&executable, graph, 0), 0);
  module.reset();
  EXPECT_EQ(graphs.launch(executable, handle), 0);
  synchronize();
  EXPECT_TRUE(is_right(in, out));
  graphs.destroy_executable(executable);
  graphs.destroy(graph);
}

TEST_F(GpuCardErrors, WhatCannotBeLaunchedIsSaidAndTheCardGoesOn) {
  const auto module = card().load(object());
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  const Arguments arguments = {in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), in.numel()};
  try {
    card().launch({.function = module->function("twice_plus_one"),
                   .block = {2048},
                   .argument = &arguments,
                   .argument_bytes = sizeof(arguments),
                   .device = in.device()});
    FAIL() << "no exception";
  } catch (const DriverError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cuLaunchKernel failed for a grid of 1x1x1 blocks of 2048x1x1 threads"));
    EXPECT_THAT(error.what(), testing::HasSubstr("CUDA_ERROR_INVALID_VALUE"));
  }
  run(*module, "twice_plus_one", in, out);
  EXPECT_TRUE(is_right(in, out));
}

TEST_F(GpuCardErrors, WhatIsNoMachineCodeOfThisCardIsNotLoaded) {
  EXPECT_THROW(card().load("nonsense, and long enough to be read as the head of a file in the format of the linker")->function("late"),
               DriverError);
  std::string why_not;
  const int other = card().identity().find("=sm_8") == std::string_view::npos ? 80 : 90;
  const auto code = codegen::cuda::Nvrtc::get(&why_not)->compile(kText, {}, codegen::cuda::kernel_options(other));
  EXPECT_THROW(card().load(code.object)->function("late"), DriverError);
  const auto module = card().load(object());
  EXPECT_THROW(module->function("no_such_kernel"), DriverError);
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  run(*module, "twice_plus_one", in, out);
  EXPECT_TRUE(is_right(in, out));
}

// CUDA does not work there; but the child must not hang, or crash when a module is freed.
TEST_F(GpuCardErrors, AChildOfAForkGetsAnException) {
  auto module = card().load(object());
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  void* const function = module->function("twice_plus_one");
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const Arguments arguments = {in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), in.numel()};
    try {
      card().launch(
          {.function = function, .block = {kThreads}, .argument = &arguments, .argument_bytes = sizeof(arguments), .device = in.device()});
    } catch (const std::exception&) {
      module.reset();
      _exit(0);
    }
    _exit(1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  run(*module, "twice_plus_one", in, out);
  EXPECT_TRUE(is_right(in, out));
}

// For the report: times are not checked.
TEST_F(GpuCard, HostTimeOfALaunch) {
  const auto module = card().load(object());
  const Tensor in = numbers(1000), out = at::full_like(in, -1);
  const Arguments arguments = {in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), in.numel()};
  const Launch launch = {.function = module->function("twice_plus_one"),
                         .module = module.get(),
                         .grid = {4},
                         .block = {kThreads},
                         .argument = &arguments,
                         .argument_bytes = sizeof(arguments),
                         .device = in.device()};
  constexpr int kLaunches = 500;  // fewer than the driver queues before it blocks
  double best = 1e9;
  for (int repeat = 0; repeat < 20; ++repeat) {
    synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) card().launch(launch);
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kLaunches);
  }
  RecordProperty("microseconds", std::to_string(best));
  EXPECT_TRUE(is_right(in, out));
}

}  // namespace
}  // namespace hindcast::tests
