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

/// How to compute gradients that are differentiated in turn: from the primals and results, which have their autograd history. The forward's
/// intermediate values are recomputed.
struct SecondOrder {
  struct Primal {
    uint32_t number;
    std::optional<uint32_t> saved;  // its number among Halves::saved, where the backward reads it too
  };
  capture::Joint joint;           // the joint program, recorded in grad mode where formulas differ there
  bool has_own_joint = false;     // it is another than that of the first derivatives
  std::vector<uint32_t> given;    // indices into Halves::saved of what is not recomputed, primals aside
  std::vector<Primal> primals;    // that the gradients depend on
  const char* why_not = nullptr;  // why the function has no second derivatives as a program; null: it has
};

/// For `with_gradients`, the primals that need a gradient.
SecondOrder second_order_of(capture::Joint joint, const std::vector<capture::ValueId>& saved_values, const std::vector<Saved>& saved,
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
