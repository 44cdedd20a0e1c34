#pragma once
// Numbers of objects that Python keeps for C++. C++ objects hold no Python objects, since they may die on any thread, with or without the
// GIL.

#include <cstdint>
#include <vector>

namespace hindcast::python {

/// While it lives, Python keeps its object under `number`.
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

/// Returns numbers that are no longer needed, each once.
std::vector<int64_t> take_released();

}  // namespace hindcast::python
