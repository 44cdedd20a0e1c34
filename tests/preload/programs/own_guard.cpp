// A program that links hindcast itself: a thread whose own guard comes first, and a thread without one.

#include <hindcast/hindcast.h>

#include <thread>

#include "tests/preload/programs/training.h"

int main() {
  bool is_right = false, is_right_there = false;
  {
    const auto guard = hindcast::enable();
    is_right = hindcast::tests::train_right();
  }
  std::thread([&] { is_right_there = hindcast::tests::train_right(); }).join();
  return is_right && is_right_there ? 0 : 1;
}
