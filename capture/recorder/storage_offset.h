#pragma once
// The storage offset of a stand-in. No guard compares it, so a recording ends where its value is used.
//
// ATen also copies offsets that it never uses: an at::TensorGeometry contains one, and poolings make a TensorGeometry of their argument
// only for its rank. So a stand-in's offset is a symbolic number, and only reading its value ends the recording.

#include <c10/core/SymInt.h>

namespace hindcast::capture {

inline constexpr const char* kAsksForAnOffset = "it asks where in its memory a tensor begins (storage_offset), which is not compared";

/// A symbolic number of this value. Reading the value ends the recording of the current thread.
c10::SymInt storage_offset_when_read(int64_t offset);

}  // namespace hindcast::capture
