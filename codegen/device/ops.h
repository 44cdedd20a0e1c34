#pragma once
// Everything that a generated kernel may call. Functions marked HC_FUNCTOR have a row in base/pointwise_ops.def.

#include "codegen/device/activations.h"
#include "codegen/device/arithmetic.h"
#include "codegen/device/complex.h"
#include "codegen/device/gradients.h"
#include "codegen/device/math.h"
#include "codegen/device/random.h"
#include "codegen/device/reductions.h"
#include "codegen/device/types.h"
