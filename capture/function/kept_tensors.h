#pragma once
// Detects tensors that a function keeps after it has returned.

namespace hindcast::capture {

/// `collect` is an interpreter's garbage collector: until it runs, reference cycles that a function dropped keep their tensors alive. Its
/// argument: false collects only the young generations.
void collect_garbage_by(void (*collect)(bool all));

/// Why such a function runs eagerly.
inline constexpr const char* kKeepsATensor =
    "it keeps a tensor that it makes, so that each call depends on the one before. Return that tensor, and give it as an argument";

}  // namespace hindcast::capture
