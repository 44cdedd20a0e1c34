#pragma once
// The accuracy of the functions of math.h, measured by tests/codegen/device/math_test.cpp: the largest error in units of the last place,
// against long double (double for float). At most 1.5 for float and 2 for double; `+ - * /`, sqrt and the roundings are correctly rounded.
// If a compiler contracts `a * b + c`, as NVRTC does by default, these change by hundredths.
//
//               float  double               float  double               float  double
//   acos        0.59    0.61      exp        0.85    0.84      sigmoid    0.86    0.86
//   asin        0.61    0.63      exp2       0.85    0.87      sin        0.84    0.86
//   atan        1.24    1.18      expm1      1.04    1.15      sin_near   1.48    0.86
//   atan2       1.47    1.43      log        0.82    0.74      sinh       1.16    1.33
//   cos         0.82    0.88      log10      0.61    0.57      sqrt       0.50    0.50
//   cos_near    1.49    0.88      log1p      0.89    0.86      tan        1.31    1.27
//   cosh        0.88    0.88      log2       0.67    0.58      tan_near   1.30    1.25
//   erf         1.13    1.17      pow        0.77    1.13      tanh       1.00    1.00
//   erfc        1.09    1.24      rsqrt      1.49    1.49
//
// xlogy and xlog1py, products of a logarithm: at most 2; measured 1.67 for float, 1.70 for double.
// gelu and gelu_backward: see tests/codegen/device/gelu_test.cpp, range by range.
//
// On a card, most functions of float are CUDA's own (card_functions.h); CUDA's documentation gives their errors.
//
// Special values are those of C's library: infinities, NaN, the sign of zero, subnormal arguments and results.
// sin, cos and tan: every float and double. sin_near, cos_near and tan_near: up to kNearAngle<T>, anything beyond. On a CPU those of float
// take a tenth (tan_near a fifth), those of double a quarter of the time that sin, cos and tan of all angles take.
// All ops vectorise, given Clang's -fno-math-errno.
