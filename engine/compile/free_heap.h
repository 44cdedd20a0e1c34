#pragma once
// Returns freed heap memory to the system: malloc keeps what was freed between blocks that live longer.

namespace hindcast::engine {

/// Takes milliseconds if much is free, and the next step has to map again what it needs.
void return_free_heap();

/// The same in the background, for captures made while large tensors are alive: each capture fragments the space that these tensors free.
/// Only every eighth call does it: captures are rare, so the heap grows by a few tensors at most in between.
void return_free_heap_after_captures();

}  // namespace hindcast::engine
