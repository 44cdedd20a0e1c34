#pragma once
// Calls of an aot_function() that C++ recognises: arguments of a known pattern, and a state of all that the function sees which still holds. What
// hindcast/_aot.py does for any call is done here for these, and Python's code is called for what is unusual.

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
    Reference seen;  // hindcast._state's, whose words these are
    const int64_t* words = nullptr;
    KindOfCall kind;
    int64_t shape = 0;  // that `result` is for
    std::optional<ResultTemplate> result;
    bool is_gone = false;
  };
  struct Outcome {
    enum class What : uint8_t { NotKnown, Raised, Hit, Finished } what = What::NotKnown;
    std::shared_ptr<Known> known;
    engine::FunctionOutput output;  // of a hit
    Reference result;               // what Python's code made of another call
  };
  /// A call that is known, and the tensors among its arguments. Null: it is not. `takes_gradients`: a call with an argument that requires a
  /// gradient may be known.
  struct Found {
    std::shared_ptr<Known> known;
    std::vector<at::Tensor> tensors;
  };
  Found find(Object* args, Object* kwargs, bool takes_gradients);
  /// Raised: Python's error is set.
  Outcome run(Found found, Object* owner, Object* args, Object* kwargs, bool is_timed);
  /// find(), and run(). NotKnown: nothing was done.
  Outcome call(Object* owner, Object* args, Object* kwargs, bool takes_gradients, bool is_timed);
  /// A call that the caller has run otherwise.
  void note_hit() { ++hits_; }
  /// Of a hit. Null: the result is a single tensor, or more than a template can put together. May set Python's error.
  static const ResultTemplate* template_of(Known& known, const engine::FunctionOutput& output, Object* owner);
  /// The result of a hit. Null: Python's error is set.
  Object* result_of(Outcome& outcome, Object* owner, Object* args, Object* kwargs);

  void remember(Object* args, Object* kwargs, Object* seen, int64_t facts, const std::vector<int64_t>& fixed, Object* objects);
  void forget(int64_t facts);
  int64_t hits() const { return hits_; }

 private:
  std::shared_ptr<Known> find_known(const CallPattern& pattern, const Reference& default_device);

  const int64_t number_;
  const Reference dead_;                       // objects that states name and that are gone: Python looks after them
  std::vector<std::shared_ptr<Known>> known_;  // the last one that was found first
  int64_t hits_ = 0;
};

/// function(number, dead) -> (call, remember, forget, hits). call(owner, args, kwargs, not_known).
Object* make_compiled_function(Object*, Object* const* arguments, std::ptrdiff_t count);
/// The object of a `call`.
CompiledFunction* compiled_function_of(Object* call);
/// know_values(types): those that count by value.
Object* know_values(Object*, Object* const* arguments, std::ptrdiff_t count);

}  // namespace hindcast::python
