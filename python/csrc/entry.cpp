// hindcast._C: calls from Python that enter C++ only once. An extension module for CPython's stable ABI, in the same library as the
// operators.

#include "hindcast/api.h"
#include "python/csrc/call_aot.h"
#include "python/csrc/call_backward.h"
#include "python/csrc/call_optim.h"
#include "python/csrc/call_times.h"
#include "python/csrc/call_train.h"
#include "python/csrc/torch_python.h"

#include <array>

namespace hindcast::python {
namespace {

// measure(True) starts measuring; measure(False) stops, and returns the engine's time in nanoseconds.
Object* measure(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 1) return raise_text("measure takes 1 argument");
  EngineTime::is_measured = is_true(arguments[0]);
  return PyLong_FromLongLong(std::exchange(EngineTime::total_ns, 0));
}

using Method = Object* (*)(Object*, Object* const*, std::ptrdiff_t);

Object* guarded_backward(Object* self, Object* const* arguments, std::ptrdiff_t count, Object* names) {
  try {
    return run_backward_of_python(self, arguments, count, names);
  } catch (...) {
    return raise(std::current_exception());
  }
}

MethodDefinition* methods() {
  static std::array methods{
      MethodDefinition{"run_backward", reinterpret_cast<Method>(reinterpret_cast<void (*)()>(&guarded_backward)), kFastCall | kKeywords,
                       nullptr},
      MethodDefinition{"set_backward", &guarded<&set_backward>, kFastCall, nullptr},
      MethodDefinition{"set_guard", &guarded<&set_guard>, kFastCall, nullptr},
      MethodDefinition{"set_process_guard", &guarded<&set_process_guard>, kFastCall, nullptr},
      MethodDefinition{"leave_next", &guarded<&leave_next>, kFastCall, nullptr},
      MethodDefinition{"take_uncounted", &guarded<&take_uncounted>, kFastCall, nullptr},
      MethodDefinition{"function", &guarded<&make_compiled_function>, kFastCall, nullptr},
      MethodDefinition{"know_values", &guarded<&know_values>, kFastCall, nullptr},
      MethodDefinition{"know_optimizers", &guarded<&know_optimizers>, kFastCall, nullptr},
      MethodDefinition{"step", &guarded<&step_optimizer>, kFastCall, nullptr},
      MethodDefinition{"train_plan", &guarded<&make_train_plan>, kFastCall, nullptr},
      MethodDefinition{"separate_gradients", &guarded<&separate_gradients>, kFastCall, nullptr},
      MethodDefinition{"train", &guarded<&train>, kFastCall, nullptr},
      MethodDefinition{"train_recorder", &guarded<&make_train_recorder>, kFastCall, nullptr},
      MethodDefinition{"train_recorder_stats", &guarded<&train_recorder_stats>, kFastCall, nullptr},
      MethodDefinition{"measure", &guarded<&measure>, kFastCall, nullptr},
      MethodDefinition{},
  };
  return methods.data();
}

}  // namespace
}  // namespace hindcast::python

extern "C" HINDCAST_API _object* PyInit__C() {
  using namespace hindcast::python;
  if (!find_torch_python()) return raise_text("this torch is not built as hindcast._C knows it");
  static ModuleDefinition definition{{reinterpret_cast<void*>(1)}, "hindcast._C", nullptr, -1, methods(), {}};
  constexpr int kStableAbi = 3;
  return PyModule_Create2(&definition, kStableAbi);
}
