// A program that links LibTorch: trainer [thread | fork | last | leave | <exit code>]...

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/preload/programs/training.h"

using hindcast::tests::train_right;

// It trains during static destruction too.
struct Last {
  ~Last() {
    if (is_on && !train_right()) std::abort();
  }
  bool is_on = false;
} last;

int main(int count, char** arguments) {
  bool is_right = train_right();
  for (int i = 1; i < count; ++i) {
    const std::string what = arguments[i];
    if (what == "thread") {
      std::thread([&] { is_right = is_right && train_right(); }).join();
    } else if (what == "fork") {
      if (const pid_t child = fork(); child == 0) {
        std::exit(train_right() ? 0 : 1);
      } else {
        int status = -1;
        is_right = waitpid(child, &status, 0) == child && status == 0 && is_right;
      }
    } else if (what == "leave") {
      if (is_right) pthread_exit(nullptr);  // the process ends with its last thread
    } else if (what == "last") {
      last.is_on = true;
    } else {
      return std::stoi(what);
    }
  }
  return is_right ? 0 : 1;
}
