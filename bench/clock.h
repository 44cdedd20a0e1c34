#pragma once

namespace hindcast::bench {

/// Microseconds since some moment: processor time if one thread works, which excludes what other processes on the machine use; else
/// wall-clock time.
double now_us();

}  // namespace hindcast::bench
