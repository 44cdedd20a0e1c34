#pragma once
// Everything a generated kernel may call. Which functions are ops, and of what kind, stands in op_list.h.

#include "codegen/device/activations.h"
#include "codegen/device/arithmetic.h"
#include "codegen/device/complex.h"
#include "codegen/device/gradients.h"
#include "codegen/device/math.h"
#include "codegen/device/types.h"
