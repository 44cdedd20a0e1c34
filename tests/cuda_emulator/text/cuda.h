#pragma once
// Included before a kernel's text (-include): NVRTC's built-in declarations, for GCC.

#define __CUDACC_RTC__ 1

#include "atomics.h"
#include "intrinsics.h"
#include "qualifiers.h"
#include "vectors.h"
#include "warp.h"
