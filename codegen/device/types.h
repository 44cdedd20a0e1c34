#pragma once
// The types of device code, and conversions between those of tensors. Freestanding: NVRTC, Clang (in process, at run time) and the compiler
// of the unit tests all compile this same text.
// CPU compilers need -ffp-contract=off, and -fno-math-errno for vectorised square roots.

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define HC_CUDA 1
#define HC_DEVICE __device__ __forceinline__
#define HC_DEVICE_MEMBER __device__ __forceinline__
#define HC_DEVICE_CALLED __device__ __noinline__
#else
#define HC_CUDA 0
#define HC_DEVICE static inline __attribute__((always_inline))
#define HC_DEVICE_MEMBER inline __attribute__((always_inline))
#define HC_DEVICE_CALLED static __attribute__((noinline, unused))
#endif

// The card's architecture, 900 for sm_90. 0: a CPU, also one that runs CUDA's text.
#ifdef __CUDA_ARCH__
#define HC_CARD __CUDA_ARCH__
#else
#define HC_CARD 0
#endif

// An op of generated kernels: it has a row in base/pointwise_ops.def.
#define HC_FUNCTOR HC_DEVICE

namespace hindcast::device {

using int8 = signed char;
using int16 = short;
using int32 = int;
using int64 = long long;
using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;

static_assert(sizeof(int16) == 2 && sizeof(int32) == 4 && sizeof(int64) == 8, "fixed widths");

/// The memory layout of 16-bit floats. Arithmetic is done in float.
struct float16 {
  uint16 bits;
};
struct bfloat16 {
  uint16 bits;
};

/// The memory layout of a bool. As in LibTorch, every byte but 0 is true: a view of bytes has others, and those of a `bool` are 0 and 1.
struct bool8 {
  uint8 bits;
};

template <class T>
inline constexpr bool is_floating = false;
template <>
inline constexpr bool is_floating<float> = true;
template <>
inline constexpr bool is_floating<double> = true;

template <class T>
inline constexpr bool is_storage_only = false;
template <>
inline constexpr bool is_storage_only<float16> = true;
template <>
inline constexpr bool is_storage_only<bfloat16> = true;
template <>
inline constexpr bool is_storage_only<bool8> = true;

template <class A, class B>
inline constexpr bool is_same = false;
template <class T>
inline constexpr bool is_same<T, T> = true;

template <class To, class From>
HC_DEVICE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  return __builtin_bit_cast(To, from);
}

/// `condition ? yes : no`. Both arguments are computed before the call, so vector code uses a blend.
template <class T>
HC_DEVICE T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}

HC_DEVICE bool widen(bool8 value) { return value.bits != 0; }
HC_DEVICE float widen(bfloat16 value) { return bit_cast<float>(static_cast<uint32>(value.bits) << 16); }

// A card has instructions for what takes a CPU several: those would cost a kernel more time than its memory does. NaN becomes 0x7FFF there,
// as in LibTorch on CUDA.
#if HC_CARD >= 800
HC_DEVICE bfloat16 narrow_to_bfloat16(float value) {
  bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
#else
/// To the nearest, ties to even; every NaN becomes 0x7FC0, as in LibTorch on the CPU.
HC_DEVICE bfloat16 narrow_to_bfloat16(float value) {
  const uint32 bits = bit_cast<uint32>(value);
  const uint32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<uint16>(select(value != value, 0x7fc0u, rounded))};
}
#endif

#if HC_CARD
HC_DEVICE float widen(float16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
HC_DEVICE float16 narrow_to_float16(float value) {
  float16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
#else
HC_DEVICE float widen(float16 value) {
  const uint32 magnitude = value.bits & 0x7fffu;
  const uint32 sign = static_cast<uint32>(value.bits & 0x8000u) << 16;
  // One ulp of 0.5f is the smallest subnormal of float16.
  const uint32 subnormal = bit_cast<uint32>(bit_cast<float>(0x3f000000u + magnitude) - 0.5f);
  const uint32 normal = (magnitude << 13) + (112u << 23);
  const uint32 quiet = select(magnitude > 0x7c00u, 0x00400000u, 0u);
  const uint32 special = ((magnitude << 13) + (224u << 23)) | quiet;
  const uint32 finite = select(magnitude < 0x0400u, subnormal, normal);
  return bit_cast<float>(sign | select(magnitude >= 0x7c00u, special, finite));
}

/// To the nearest, ties to even; a NaN keeps its sign and becomes 0x7E00, as in LibTorch on the CPU.
HC_DEVICE float16 narrow_to_float16(float value) {
  const uint32 bits = bit_cast<uint32>(value);
  const uint32 magnitude = bits & 0x7fffffffu;
  const uint32 sign = (bits >> 16) & 0x8000u;
  const uint32 subnormal = bit_cast<uint32>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32 normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  const uint32 finite = select(magnitude < 0x38800000u, subnormal, normal);
  const uint32 clamped = select(magnitude >= 0x477ff000u, 0x7c00u, finite);
  return {static_cast<uint16>(sign | select(magnitude > 0x7f800000u, 0x7e00u, clamped))};
}
#endif

template <class T>
HC_DEVICE T widen(T value) {
  return value;
}

/// Between any two types that tensors have, as LibTorch converts them.
template <class To, class From>
HC_DEVICE To convert(From from) {
  if constexpr (is_same<To, From>) {
    return from;
  } else if constexpr (is_storage_only<From>) {
    return convert<To>(widen(from));
  } else if constexpr (is_same<To, bool>) {
    return from != From(0);
  } else if constexpr (is_same<To, bool8>) {
    return {static_cast<uint8>(convert<bool>(from))};
  } else if constexpr (is_same<To, bfloat16>) {
    return narrow_to_bfloat16(static_cast<float>(from));
  } else if constexpr (is_same<To, float16>) {
    return narrow_to_float16(static_cast<float>(from));
  } else {
    return static_cast<To>(from);
  }
}

}  // namespace hindcast::device
