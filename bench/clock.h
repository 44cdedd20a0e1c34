#pragma once

namespace hindcast::bench {

/// Microseconds from some moment on: the processor's time where one thread works, which does not count what neighbours on the machine take;
/// else the clock's.
double now_us();

}  // namespace hindcast::bench
