#pragma once
// What the functions of math.h promise, as tests/device/math_test.cpp measures it: the largest error in units of the last place,
// against long double (double for float). At most 1.5 for float and 2 for double; `+ - * /`, sqrt and the roundings are correctly rounded.
// Where a compiler contracts `a * b + c`, as NVRTC does unless told otherwise, these change by hundredths.
//
//              float  double                 float  double                 float  double
//   acos        0.58    0.56      exp         0.82    0.80      rsqrt       1.49    1.49
//   asin        0.59    0.60      exp2        0.84    0.84      sigmoid     0.75    0.59
//   atan        1.23    1.10      expm1       1.03    1.02      sin         0.84    0.75
//   atan2       1.47    1.42      log         0.82    0.74      sinh        1.12    1.14
//   cos         0.82    0.78      log10       0.61    0.57      sqrt        0.50    0.50
//   cosh        0.87    0.88      log1p       0.86    0.83      tan         1.23    0.99
//   erf         1.02    1.03      log2        0.67    0.58      tanh        0.73    0.79
//   erfc        1.09    1.10      pow         0.76    1.13
//
// Special values are those of C's library: infinities, NaN, the sign of zero, subnormal arguments and results.
// sin, cos and tan: every float; for double up to kLargestDoubleAngle, and NaN beyond rather than a wrong number.
// fmod and remainder are exact, but loops: they do not become vector code. All other ops do, given Clang's -fno-math-errno.

#include "codegen/device/trigonometry.h"

namespace hindcast::device {

inline constexpr double kLargestDoubleAngle = Angles<double>::kLargestNear;

}  // namespace hindcast::device
