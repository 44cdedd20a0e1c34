#include "tests/whole/fuzz/current_seed.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace hindcast::tests::fuzz {
namespace {

std::atomic<uint64_t> g_seed{0};
struct sigaction g_former[NSIG];

// Only what is allowed in a signal handler.
void on_crash(int signal) {
  char text[] = "the fuzzer was stopped; HINDCAST_FUZZ_SEEDS=00000000000000000000:1 runs the program again\n";
  char* digit = text;
  while (*digit != '0') ++digit;
  digit += 20;
  for (uint64_t seed = g_seed.load(); seed != 0; seed /= 10) *--digit = static_cast<char>('0' + seed % 10);
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  sigaction(signal, &g_former[signal], nullptr);
  raise(signal);
}

}  // namespace

void set_current_seed(uint64_t seed) { g_seed.store(seed); }

void name_the_seed_on_crashes() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGTERM}) {
    struct sigaction action = {};
    action.sa_handler = on_crash;
    sigaction(signal, &action, &g_former[signal]);
  }
}

}  // namespace hindcast::tests::fuzz
