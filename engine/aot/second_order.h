#pragma once
// What differentiating the backward needs from the forward program.

#include "capture/function/joint.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace hindcast::engine {

/// Where to find, after the forward, a value that the backward needs.
struct Saved {
  enum class From : uint8_t { Primal, Result, Forward };
  From from = From::Forward;
  uint32_t index = 0;  // of the primal, the result, or the forward program's output
};

/// How to compute gradients that are differentiated in turn: from the primals and results, which have their autograd history. Intermediate
/// values of the forward are recomputed.
struct SecondOrder {
  struct Primal {
    uint32_t number;
    std::optional<uint32_t> saved;  // its index in ProgramPair::saved, if the backward reads it too
  };
  struct Given {
    uint32_t saved;    // its index in ProgramPair::saved
    bool has_history;  // it depends on a primal that needs a gradient
  };
  struct Recomputed {
    uint32_t saved;       // its index in ProgramPair::saved
    bool was_contiguous;  // in the trace
  };
  capture::Joint joint;                // the joint program, traced in grad mode if formulas differ there
  bool has_own_joint = false;          // `joint` is not the one for first derivatives
  bool was_asked_for = false;          // by the call that was traced
  bool recomputes_results = false;     // as second_order_of()'s
  std::vector<Given> given;            // values that are not recomputed, except primals
  std::vector<Recomputed> recomputed;  // values that are recomputed for their derivatives alone: the forward has saved them
  std::vector<Primal> primals;         // those that the gradients depend on
  const char* why_not = nullptr;       // why the function has no program for second derivatives; nullptr if it has
};

/// `with_gradients`: the primals that need a gradient. `recomputes_results`: a node may not use the history of another node's results.
SecondOrder second_order_of(capture::Joint joint, const std::vector<capture::ValueId>& saved_values, const std::vector<Saved>& saved,
                            const std::vector<uint32_t>& with_gradients, bool recomputes_results);

/// The joint program for gradients of only some results. `flows`: by tangent.
capture::Joint with_flows(const capture::Joint& joint, const std::vector<bool>& flows);

/// What the derivatives of some results' gradients read.
struct ReadForDerivatives {
  std::vector<bool> saved;    // by ProgramPair::saved
  std::vector<bool> primals;  // by SecondOrder::primals
};
/// `joint`: of `order`, with_flows() of these results.
ReadForDerivatives read_for_derivatives(const SecondOrder& order, const capture::Joint& joint,
                                        const std::vector<capture::ValueId>& saved_values);

/// A lazily computed constant. Thread-safe.
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
    return *expected;  // another thread was first
  }

 private:
  mutable std::atomic<const T*> known_ = nullptr;
};

}  // namespace hindcast::engine
