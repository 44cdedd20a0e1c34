#pragma once
// An operator that is looked up by its name once, on first use.

#include "base/fork.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace hindcast::capture {

/// To be declared `static constinit`. Throws c10::Error on first use if there is no such operator.
class KnownOp {
 public:
  explicit constexpr KnownOp(const char* name, const char* overload = "") : name_(name), overload_(overload) {}

  const c10::OperatorHandle& get() {
    return op_.by([this] { return c10::Dispatcher::singleton().findSchemaOrThrow(name_, overload_); });
  }

 private:
  const char *name_, *overload_;
  base::MadeOnce<const c10::OperatorHandle> op_;
};

}  // namespace hindcast::capture
