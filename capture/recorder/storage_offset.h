#pragma once
// A stand-in's storage offset, which no guard compares.
//
// ATen takes it along where nobody uses it: at::TensorGeometry has it, and poolings make one of their argument to ask for its rank. So what they
// get is a number that refuses only when somebody reads it.

#include <c10/core/SymInt.h>

namespace hindcast::capture {

inline constexpr const char* kAsksForAnOffset = "it asks where in its memory a tensor begins (storage_offset), which is not compared";

/// `offset`, of which the recorder of the thread is told when it is read.
c10::SymInt storage_offset_when_read(int64_t offset);

}  // namespace hindcast::capture
