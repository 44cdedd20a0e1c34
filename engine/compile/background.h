#pragma once
// A background queue: one low-priority thread, which ends after a second without jobs, runs the jobs in order.
//
// fork() does not wait for jobs. The child inherits the queued jobs and the one that was running, and starts its own thread for them
// as soon as it adds a job or waits.

#include <cstddef>
#include <functional>

namespace hindcast::engine {

struct Job {
  std::function<void()> run;        // throws nothing; may run twice: in a parent and in its child
  std::function<bool()> is_wanted;  // asked before it runs, and when the queue is over its byte limit
  size_t bytes = 0;                 // that the job keeps alive while it waits
};

/// Bytes that waiting jobs may keep alive together. A single job may exceed it.
inline constexpr size_t kMostWaitingBytes = size_t{256} << 20;

/// Returns false if the queue is over its byte limit; the job is then dropped.
bool run_in_background(Job job);

/// Returns when the jobs that were added before, and those that they add, are done. What is queued runs at the caller's priority meanwhile,
/// on a thread of its own.
void wait_for_background();

/// Does what process exit does, for callers that destroy earlier what jobs use: finishes the running job, and runs no more.
void stop_background();

/// True while the process exits: a long job should stop.
bool process_ends();

}  // namespace hindcast::engine
