// Compiles on several threads, across forks and at process exit.

#include "base/fork_gate.h"
#include "tests/codegen/cpu/clang/the_compiler.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <latch>
#include <thread>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

std::string source_returning(int value) { return "extern \"C\" int run() { return " + std::to_string(value) + "; }"; }

int compiled_and_run(const ClangCompiler& compiler, int value) {
  const auto kernel = compiler.load(compiler.compile({.text = source_returning(value)}));
  return function<int()>(*kernel, "run")();
}

/// The status from waitpid() for a child that runs `body` and exits normally, with destructors.
template <class Body>
int status_of_child(const Body& body) {
  fflush(stdout);  // else the child's exit would write the parent's buffer too
  const pid_t child = fork();
  if (child == 0) {
    body();
    exit(0);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

/// Compiles while it lives; its constructor waits for the first compiles.
class BackgroundCompiles {
 public:
  BackgroundCompiles(std::shared_ptr<ClangCompiler> compiler, int threads) {
    for (int i = 0; i < threads; ++i) {
      auto* const count = &count_;
      threads_.emplace_back([compiler, count, stop = &stop_] {
        while (!*stop) {
          compiled_and_run(*compiler, ++*count);
          count->notify_all();
        }
      });
    }
    for (int seen = count_; seen < threads; seen = count_) count_.wait(seen);
  }
  ~BackgroundCompiles() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<int> count_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

TEST(CompilerThreads, FourCompileAndLoadAtOnce) {
  HC_GET_COMPILER(compiler);
  std::latch start(4);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      for (int i = 0; i < 5; ++i) right += compiled_and_run(*compiler, 100 * thread + i) == 100 * thread + i ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 20);
}

TEST(CompilerThreads, OneFailsWhileOthersCompile) {
  HC_GET_COMPILER(compiler);
  const BackgroundCompiles others(compiler, 2);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(compiler->compile({.text = "nonsense"}), CompileError);
}

TEST(CompilerThreads, AKernelIsUnloadedWithItsLastHolder) {
  HC_GET_COMPILER(compiler);
  const std::string object = compiler->compile({.text = source_returning(7)});
  auto kernel = compiler->load(object);
  auto holder = kernel;
  kernel.reset();
  EXPECT_EQ(function<int()>(*holder, "run")(), 7);
  const void* const address = holder->symbol("run");
  holder.reset();
  // Uses write() to test whether memory is mapped at an address: reading unmapped memory would crash.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], address, 1), -1) << "the code is still there";
  EXPECT_EQ(errno, EFAULT);
  close(ends[0]);
  close(ends[1]);
}

TEST(CompilerThreads, ManyLoadsLeaveNothingBehind) {
  HC_GET_COMPILER(compiler);
  const std::string object = compiler->compile({.text = source_returning(7)});
  const auto mapped = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  compiler->load(object);
  const auto before = mapped();
  for (int i = 0; i < 200; ++i) compiler->load(object);
  EXPECT_LT(mapped(), before + 50);
}

TEST(CompilerThreads, AChildMayCompileAfterItsParentDid) {
  HC_GET_COMPILER(compiler);
  EXPECT_EQ(compiled_and_run(*compiler, 1), 1);
  EXPECT_EQ(status_of_child([&] { _exit(compiled_and_run(*compiler, 2) == 2 ? 0 : 1); }), 0);
}

TEST(CompilerThreads, AChildMayCompileThoughItsParentWasCompiling) {
  HC_GET_COMPILER(compiler);
  const BackgroundCompiles parents(compiler, 2);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(status_of_child([&] {
                alarm(120);  // a deadlock ends the child instead of hanging the test
                _exit(compiled_and_run(*compiler, i) == i ? 0 : 1);
              }),
              0);
  }
}

TEST(ForkGateThreads, AForkFindsNobodyInside) {
  std::atomic<bool> inside = false, stop = false;
  std::atomic<int> entered = 0;
  std::thread other([&] {
    while (!stop) {
      const base::InsideCompiler gate;
      inside = true;
      ++entered;
      entered.notify_one();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      inside = false;
    }
  });
  for (int i = 0; i < 20; ++i) {
    entered.wait(entered);
    EXPECT_EQ(status_of_child([&] {
                if (inside) _exit(1);
                const base::InsideCompiler gate;  // open for the child too
                _exit(0);
              }),
              0);
  }
  stop = true;
  other.join();
}

TEST(CompilerThreads, AKernelOfTheParentRunsInTheChild) {
  HC_GET_COMPILER(compiler);
  const auto kernel = compiler->load(compiler->compile({.text = source_returning(3)}));
  EXPECT_EQ(status_of_child([&] { _exit(function<int()>(*kernel, "run")() == 3 ? 0 : 1); }), 0);
}

TEST(CompilerThreads, AProcessMayExitWhileAThreadCompiles) {
  HC_GET_COMPILER(compiler);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(status_of_child([&] {
                static std::atomic<bool> started = false;
                std::thread([compiler] {
                  while (true) {
                    compiled_and_run(*compiler, 1);
                    started = true;
                    started.notify_one();
                  }
                }).detach();
                started.wait(false);
              }),
              0);
  }
}

// A fatal error of LLVM would abort the process. It disables the compiler, hence a child process.
TEST(CompilerThreads, AFatalErrorOfLLVMIsACompileError) {
  HC_GET_COMPILER(compiler);
  // The back end does not have this register where functions keep no frame pointer.
  const std::string_view fatal = "register unsigned long frame asm(\"rbp\"); extern \"C\" unsigned long run() { return frame; }";
  if (compiler->identity().find("x86_64") == std::string::npos) GTEST_SKIP() << "the source is for x86-64";
  EXPECT_EQ(status_of_child([&] {
              int refused = 0;
              for (const std::string& text : {std::string(fatal), source_returning(1)}) {
                try {
                  compiler->compile({.text = text});
                } catch (const CompileError&) {
                  ++refused;
                }
              }
              _exit(refused == 2 ? 0 : 1);  // the stack's allocations leak, and a leak checker would report them
            }),
            0);
}

}  // namespace
}  // namespace hindcast::codegen::cpu
