#pragma once
// Memory that was freed between blocks that live longer stays with malloc until it is told.

namespace hindcast::engine {

/// Returns it to the system. It takes milliseconds where much is free, and the next step maps what it needs again.
void return_free_heap();

/// The same in the background, for captures among large tensors: each leaves some of their places too small for the next.
/// Every eighth call does it: captures are rare, and so the heap grows by a few tensors at most.
void return_free_heap_after_captures();

}  // namespace hindcast::engine
