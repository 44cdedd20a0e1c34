#pragma once
// Builds a kernel's only argument, a struct of codegen/device/arguments.h: words of 8 bytes. Its parts are added in the order of the
// struct's bases and members; each part is filled by name.

#include "codegen/device/arguments.h"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace hindcast::codegen::cuda {

class Arguments {
 public:
  void add_address(const void* pointer) {
    pointers_.push_back(static_cast<uint16_t>(words_.size()));
    words_.push_back(reinterpret_cast<uintptr_t>(pointer));
  }
  void add(int64_t number) { words_.push_back(static_cast<uint64_t>(number)); }
  /// A scalar of the compute type; for complex types, of the type of its parts.
  void add_scalar(at::ScalarType compute, double number) { words_.push_back(word_of(compute, number)); }
  /// A part of the struct that has no addresses.
  template <class Part>
  void add_part(const Part& part) {
    static_assert(std::is_trivially_copyable_v<Part> && sizeof(Part) % sizeof(uint64_t) == 0 && alignof(Part) <= alignof(uint64_t));
    const size_t first = words_.size();
    words_.resize(first + sizeof(Part) / sizeof(uint64_t));
    std::memcpy(&words_[first], &part, sizeof(Part));
  }

  /// Overwrites the scalar at index `word`.
  void set_scalar(size_t word, at::ScalarType compute, double number) { words_[word] = word_of(compute, number); }
  /// Turns an offset, added as an address before, into `base` plus the offset; nullptr if `base` is nullptr.
  void lead(size_t pointer, const void* base) {
    uint64_t& address = words_[pointers_[pointer]];
    address = base == nullptr ? 0 : reinterpret_cast<uintptr_t>(base) + address;
  }

  const void* data() const { return words_.data(); }
  size_t bytes() const { return words_.size() * sizeof(uint64_t); }
  /// Marks that some addresses point to the padding around a tensor, and so outside its memory.
  void lead_outside() { lead_outside_ = true; }
  bool do_lead_outside() const { return lead_outside_; }
  /// Indices of the words that are addresses.
  c10::ArrayRef<uint16_t> pointers() const { return pointers_; }

 private:
  static uint64_t word_of(at::ScalarType compute, double number) {
    const bool is_wide = c10::toRealValueType(compute) == at::kDouble;
    return is_wide ? std::bit_cast<uint64_t>(number) : uint64_t{std::bit_cast<uint32_t>(static_cast<float>(number))};
  }

  c10::SmallVector<uint64_t, 96> words_;
  c10::SmallVector<uint16_t, 16> pointers_;
  bool lead_outside_ = false;
};

}  // namespace hindcast::codegen::cuda
