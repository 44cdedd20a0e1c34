#pragma once
// Work that is done beside the backwards, in order, by one thread of low priority that starts with the first job.
//
// A fork waits for none of it. The child has the jobs that were waiting and the one that was under way, and a thread of its
// own for them as soon as it adds a job or waits.

#include <cstddef>
#include <functional>

namespace hindcast::engine {

struct Job {
  std::function<void()> run;        // throws nothing; may run twice: in a parent and in its child
  std::function<bool()> is_wanted;  // asked before it runs, and when room is short
  size_t bytes = 0;                 // that it keeps alive while it waits
};

/// What waiting jobs may keep alive together; one job alone may keep more.
inline constexpr size_t kMostWaitingBytes = size_t{256} << 20;

/// False: there was no room, and the job is dropped.
bool run_in_background(Job job);

/// Returns when no job waits or runs.
void wait_for_background();

/// As the exit of the process does, for who takes away before what jobs use: the job that runs is finished, and there are no more.
void stop_background();

/// The process ends: a job that takes long should stop.
bool process_ends();

}  // namespace hindcast::engine
