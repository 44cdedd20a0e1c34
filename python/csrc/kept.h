#pragma once
// What Python keeps under a number for C++, whose objects hold no Python ones: they may die on any thread, with or without the GIL.

#include <cstdint>
#include <vector>

namespace hindcast::python {

/// Python may drop what it keeps under `number` once this is gone.
class Kept {
 public:
  explicit Kept(int64_t number) : number_(number) {}
  ~Kept();
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  int64_t number() const { return number_; }

 private:
  const int64_t number_;
};

/// Numbers that are needed no longer; each is told once.
std::vector<int64_t> take_released();

}  // namespace hindcast::python
