#pragma once
// CUDA's vector types with CUDA's alignment: vectors of three like one element, others as a whole, up to 16 bytes.

#include "qualifiers.h"

#define HC_VECTORS(type, name, align2, align4)                              \
  struct name##1 {                                                          \
    type x;                                                                 \
  };                                                                        \
  struct __align__(align2) name##2 {                                        \
    type x, y;                                                              \
  };                                                                        \
  struct __align__(align4) name##4 {                                        \
    type x, y, z, w;                                                        \
  };                                                                        \
  __forceinline__ name##2 make_##name##2(type x, type y) { return {x, y}; } \
  __forceinline__ name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

HC_VECTORS(signed char, char, 2, 4)
HC_VECTORS(unsigned char, uchar, 2, 4)
HC_VECTORS(short, short, 4, 8)
HC_VECTORS(unsigned short, ushort, 4, 8)
HC_VECTORS(int, int, 8, 16)
HC_VECTORS(unsigned, uint, 8, 16)
HC_VECTORS(long long, longlong, 16, 16)
HC_VECTORS(unsigned long long, ulonglong, 16, 16)
HC_VECTORS(float, float, 8, 16)
HC_VECTORS(double, double, 16, 16)
#undef HC_VECTORS

#define HC_VECTOR_OF_THREE(type, name) \
  struct name##3 {                     \
    type x, y, z;                      \
  };                                   \
  __forceinline__ name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }
HC_VECTOR_OF_THREE(int, int)
HC_VECTOR_OF_THREE(float, float)
HC_VECTOR_OF_THREE(double, double)
#undef HC_VECTOR_OF_THREE
__forceinline__ uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
