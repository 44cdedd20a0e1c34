#pragma once

namespace hindcast::base {

/// True once this thread's thread_local objects have been destroyed, for threads that called this before. On the main thread, exit() does
/// that before it runs atexit handlers and the destructors of static objects, which may run a backward.
bool thread_has_ended();

}  // namespace hindcast::base
