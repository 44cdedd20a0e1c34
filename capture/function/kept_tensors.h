#pragma once
// Tensors that a function keeps.

namespace hindcast::capture {

/// An interpreter's collector: objects in a circle, of which a function has let go, hold their tensors until it runs.
void collect_garbage_by(void (*collect)());

}  // namespace hindcast::capture
