#pragma once
// The fast path for calls of an aot_function(): arguments of a known pattern, with everything that the function sees unchanged. Does in C++
// what hindcast/_aot.py does for any call, and calls that Python code in all other cases.

#include "python/csrc/aot.h"
#include "python/csrc/call_pattern.h"
#include "python/csrc/result_template.h"

#include <memory>
#include <optional>
#include <vector>

namespace hindcast::python {

class CompiledFunction {
 public:
  CompiledFunction(int64_t number, Object* dead) : number_(number), dead_(Reference::of_borrowed(dead)) {}

  /// A kind of call that remember() has stored.
  struct Known {
    CallPattern pattern;
    Reference default_device;
    Reference seen;  // the hindcast._state object that owns `words`
    const int64_t* words = nullptr;
    KindOfCall kind;
    int64_t shape = 0;  // the shape that `result` is for
    std::optional<ResultTemplate> result;
    bool is_gone = false;
  };
  struct Outcome {
    enum class What : uint8_t { NotKnown, Raised, Hit, Finished } what = What::NotKnown;
    std::shared_ptr<Known> known;
    detail::FunctionOutput output;  // of a hit
    Reference result;               // returned by the Python code if it ran the call
  };
  /// A known kind of call, and the tensors among the arguments. `known` is nullptr if the call is not recognised. `takes_gradients`: calls
  /// with arguments that require a gradient may be recognised.
  struct Found {
    std::shared_ptr<Known> known;
    std::vector<at::Tensor> tensors;
  };
  Found find(Object* args, Object* kwargs, bool takes_gradients);
  /// Outcome::What::Raised: Python's error is set.
  Outcome run(Found found, Object* owner, Object* args, Object* kwargs, bool is_timed);
  /// find(), then run(). NotKnown: nothing was done.
  Outcome call(Object* owner, Object* args, Object* kwargs, bool takes_gradients, bool is_timed);
  /// Counts a hit that the caller ran by other means.
  void note_hit() { ++hits_; }
  /// The template of a hit's result; nullptr if the result is a single tensor, or something a template cannot build. May set Python's
  /// error.
  static const ResultTemplate* template_of(Known& known, const detail::FunctionOutput& output, Object* owner);
  /// The result of a hit; nullptr if Python's error is set.
  Object* result_of(Outcome& outcome, Object* owner, Object* args, Object* kwargs);

  void remember(Object* args, Object* kwargs, Object* seen, int64_t facts, const std::vector<int64_t>& fixed, Object* objects);
  void forget(int64_t facts);
  int64_t hits() const { return hits_; }

 private:
  std::shared_ptr<Known> find_known(const CallPattern& pattern, const Reference& default_device);

  const int64_t number_;
  const Reference dead_;                       // watched objects that have died, maintained by Python
  std::vector<std::shared_ptr<Known>> known_;  // most recently found first
  int64_t hits_ = 0;
};

/// function(number, dead) -> (call, remember, forget, hits). call(owner, args, kwargs, not_known).
Object* make_compiled_function(Object*, Object* const* arguments, std::ptrdiff_t count);
/// The C++ object behind a `call` function.
CompiledFunction* compiled_function_of(Object* call);
/// know_values(types): the types that are compared by value.
Object* know_values(Object*, Object* const* arguments, std::ptrdiff_t count);

}  // namespace hindcast::python
