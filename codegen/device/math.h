#pragma once
// The transcendental functions, for float and double: no branches and no calls, so that loops over them vectorise.
// coverage.h gives the accuracy of each; tests/codegen/device/math_test.cpp measures it.

#include "codegen/device/card_functions.h"
#include "codegen/device/error_function.h"
#include "codegen/device/exponentials.h"
#include "codegen/device/logarithms.h"
#include "codegen/device/trigonometry.h"
