#include "tests/support/crash_report.h"

#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

namespace hindcast::tests {
namespace {

std::array<char, 1024> under_way = {};

// Uses only what a signal handler may call.
void report(int signal) {
  constexpr char kHead[] = "\ncrashed in: ";
  std::array<void*, 64> frames;
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kHead, sizeof(kHead) - 1);
  written = write(STDERR_FILENO, under_way.data(), strnlen(under_way.data(), under_way.size()));
  written = write(STDERR_FILENO, "\n", 1);
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), static_cast<int>(frames.size())), STDERR_FILENO);
  raise(signal);  // end as without a handler
}

}  // namespace

void report_crashes() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads its libraries, which a handler must not do
  struct sigaction action = {};
  action.sa_handler = report;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGSEGV, &action, nullptr);
}

void set_under_way(const std::string& what) {
  const size_t count = std::min(what.size(), under_way.size() - 1);
  std::memcpy(under_way.data(), what.data(), count);
  under_way[count] = '\0';
}

}  // namespace hindcast::tests
