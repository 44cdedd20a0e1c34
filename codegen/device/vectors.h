#pragma once
// Neighbouring elements in one access, of up to 16 bytes. Only for CUDA kernels: a CPU's compiler vectorises loops itself.

#include "codegen/device/complex.h"

namespace hindcast::device {

/// The type that one access moves.
template <int kBytes>
struct Chunk;
template <>
struct Chunk<1> {
  uint8 bits;
};
template <>
struct Chunk<2> {
  uint16 bits;
};
template <>
struct Chunk<4> {
  uint32 bits;
};
template <>
struct alignas(8) Chunk<8> {
  uint32 bits[2];
};
template <>
struct alignas(16) Chunk<16> {
  uint32 bits[4];
};

/// An element as stored in memory, of a class that is copied as bytes.
template <class T>
struct InMemory {
  using Type = T;
  static HC_DEVICE_MEMBER T value(T stored) { return stored; }
  static HC_DEVICE_MEMBER T stored(T value) { return value; }
};
template <class T>
struct InMemory<Complex<T>> {
  struct Type {
    T real, imag;
  };
  static HC_DEVICE_MEMBER Complex<T> value(Type stored) { return {stored.real, stored.imag}; }
  static HC_DEVICE_MEMBER Type stored(Complex<T> value) { return {value.real, value.imag}; }
};

template <class T, int kCount>
struct Vector {
  using Memory = InMemory<T>;
  static constexpr int kBytes = kCount * sizeof(T), kChunk = kBytes < 16 ? kBytes : 16, kChunks = kBytes / kChunk;

  typename Memory::Type at[kCount];

  HC_DEVICE_MEMBER T get(int i) const { return Memory::value(at[i]); }
  HC_DEVICE_MEMBER void set(int i, T value) { at[i] = Memory::stored(value); }
};

/// `from` is aligned for the chunks. `apart`: bytes from one chunk to the next. Where each thread of a warp has several, shared memory
/// gives out twice as many at a time if the first ones of all threads lie side by side, then the second ones.
template <int kCount, class T>
HC_DEVICE Vector<T, kCount> load_vector(const T* from, int apart = Vector<T, kCount>::kChunk) {
  using Result = Vector<T, kCount>;
  if constexpr (kCount == 1) {
    Result one;
    one.set(0, *from);
    return one;
  } else {
    using Access = Chunk<Result::kChunk>;
    struct Chunks {
      Access chunk[Result::kChunks];
    } chunks;
#pragma unroll
    for (int i = 0; i < Result::kChunks; ++i) chunks.chunk[i] = *reinterpret_cast<const Access*>((const char*)from + i * apart);
    return bit_cast<Result>(chunks);
  }
}

/// A vector of counters (`hindcast::counters`). Each is one more than the one before it, so only the first is read. An access of several
/// begins at an even one, and the compiler sees which two share a pair of random numbers (`philox`).
template <int kCount>
struct Counters {
  int32 first;

  HC_DEVICE_MEMBER int32 get(int i) const { return kCount == 1 ? first : ((first & ~1) + (i & ~1)) | (i & 1); }
};

template <int kCount>
HC_DEVICE Counters<kCount> load_counters(const int32* from) {
  return {*from};
}

template <int kCount, class T>
HC_DEVICE void store_vector(T* to, Vector<T, kCount> value, int apart = Vector<T, kCount>::kChunk) {
  if constexpr (kCount == 1) {
    *to = value.get(0);
  } else {
    using Access = Chunk<Vector<T, kCount>::kChunk>;
    struct Chunks {
      Access chunk[Vector<T, kCount>::kChunks];
    };
    const auto chunks = bit_cast<Chunks>(value);
#pragma unroll
    for (int i = 0; i < Vector<T, kCount>::kChunks; ++i) *reinterpret_cast<Access*>((char*)to + i * apart) = chunks.chunk[i];
  }
}

/// Null stays null.
template <class T>
HC_DEVICE T* moved(char* pointer, int64 bytes) {
  return pointer == nullptr ? nullptr : reinterpret_cast<T*>(pointer + bytes);
}

/// Writes a leaf's gradient, in the kernel that computes it: `sum` of `value` and `term`. Null: the sum is not needed; no term.
template <int kCount, class T>
HC_DEVICE void store_to_leaf(T* sum, const T* term, Vector<T, kCount> value) {
  if (sum == nullptr) return;
  if (term != nullptr) {
    const Vector<T, kCount> more = load_vector<kCount>(term);
#pragma unroll
    for (int i = 0; i < kCount; ++i) value.set(i, convert<T>(widen(more.get(i)) + widen(value.get(i))));
  }
  store_vector<kCount>(sum, value);
}

}  // namespace hindcast::device
