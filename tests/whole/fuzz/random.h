#pragma once
// Random choices that are the same on every machine, which the distributions of the standard library are not.

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace hindcast::tests::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  /// From 0 to `end` - 1.
  int64_t below(int64_t end) { return static_cast<int64_t>(next() % static_cast<uint64_t>(end)); }
  int64_t between(int64_t first, int64_t last) { return first + below(last - first + 1); }
  bool percent(int64_t chance) { return below(100) < chance; }

  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<int64_t>(list.size())));
  }

 private:
  uint64_t next() {  // splitmix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace hindcast::tests::fuzz
