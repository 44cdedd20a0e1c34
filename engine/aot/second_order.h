#pragma once
// What a backward of the backward needs of a forward program.

#include "capture/function/joint.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace hindcast::engine {

/// Where a value that the backward needs is to be had, after the forward.
struct Saved {
  enum class From : uint8_t { Primal, Result, Forward };
  From from = From::Forward;
  uint32_t index = 0;  // of the primal, of the result, or of the forward program's output
};

/// How a backward of the backward gets the derivatives of values that the forward saves: autograd computes these once more.
struct SecondOrder {
  struct Primal {
    uint32_t number;
    std::optional<uint32_t> saved;  // its number among Halves::saved, where the backward reads it too
  };
  std::vector<uint32_t> saved;      // among Halves::saved: what depends on a primal with a gradient, and is no primal or result
  std::vector<uint32_t> constants;  // the same: what depends on none, as a mask or an index
  std::vector<Primal> primals;      // that the first are computed of
  bool draws = false;               // random numbers, on the way
};

SecondOrder second_order_of(const capture::Joint& joint, const std::vector<capture::ValueId>& saved_values, const std::vector<Saved>& saved,
                            const std::vector<uint32_t>& with_gradients);

/// Something that is found out later, by any thread, and then stays.
template <class T>
class FoundOnce {
 public:
  FoundOnce() = default;
  ~FoundOnce() { delete known_.load(); }
  FoundOnce(const FoundOnce&) = delete;
  FoundOnce& operator=(const FoundOnce&) = delete;

  template <class Find>
  const T& get(Find find) const {
    if (const T* known = known_.load(std::memory_order_acquire)) return *known;
    auto found = std::make_unique<const T>(find());
    const T* expected = nullptr;
    if (known_.compare_exchange_strong(expected, found.get(), std::memory_order_acq_rel)) return *found.release();
    return *expected;  // another thread was faster
  }

 private:
  mutable std::atomic<const T*> known_ = nullptr;
};

}  // namespace hindcast::engine
