#pragma once
// Detects tensors that a function keeps after it has returned.

namespace hindcast::capture {

/// `collect` is an interpreter's garbage collector: until it runs, reference cycles that a function dropped keep their tensors alive. Its
/// argument: false collects only the young generations.
void collect_garbage_by(void (*collect)(bool all));

}  // namespace hindcast::capture
