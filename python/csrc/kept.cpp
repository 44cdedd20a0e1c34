#include "python/csrc/kept.h"

#include "base/fork.h"

#include <mutex>
#include <utility>

namespace hindcast::python {
namespace {

struct Released {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};
  std::vector<int64_t> numbers;
};
Released& released() {
  static constinit base::MadeOnce<Released> released;
  return released.get();
}

}  // namespace

Kept::~Kept() {
  const std::lock_guard lock(released().mutex);
  released().numbers.push_back(number_);
}

std::vector<int64_t> take_released() {
  const std::lock_guard lock(released().mutex);
  return std::exchange(released().numbers, {});
}

}  // namespace hindcast::python
