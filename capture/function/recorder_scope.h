#pragma once
// The state of a thread while it runs a traced function, or that function's backward.

#include "capture/recorder/recorder.h"

#include <exception>

namespace hindcast::capture {

/// While alive, calls of this thread are recorded, with autograd active above.
class RecorderScope {
 public:
  explicit RecorderScope(Recorder& recorder);
  ~RecorderScope();
  RecorderScope(const RecorderScope&) = delete;
  RecorderScope& operator=(const RecorderScope&) = delete;

 private:
  const bool replays_views_, caches_casts_, has_device_threads_;
  const Recorder::Scope scope_;
};

/// Recognises LibTorch's errors for access to the memory of a stand-in.
bool is_about_a_stand_in(const std::exception& error);

}  // namespace hindcast::capture
