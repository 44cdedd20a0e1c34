#pragma once
// Builds a kernel's only argument, a struct: words of 8 bytes, in the order of the struct in the kernel's text.

#include "codegen/device/indexing.h"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <bit>
#include <cstdint>

namespace hindcast::codegen::cuda {

class Arguments {
 public:
  void add_address(const void* pointer) {
    pointers_.push_back(static_cast<uint16_t>(words_.size()));
    words_.push_back(reinterpret_cast<uintptr_t>(pointer));
  }
  void add(int64_t number) { words_.push_back(static_cast<uint64_t>(number)); }
  void add(const device::Divider& divider) {
    add(int64_t{divider.divisor});
    words_.push_back(uint64_t{divider.magic} | uint64_t{divider.shift} << 32);
  }
  /// A scalar of the compute type; for complex types, of the type of its parts.
  void add_scalar(at::ScalarType compute, double number) { words_.push_back(word_of(compute, number)); }
  /// A table of `rows` by `columns` words, padded with zeros to the `room` rows of the kernel's struct.
  template <class Number>
  void add_table(size_t rows, size_t columns, size_t room, Number number) {
    for (size_t row = 0; row < room; ++row) {
      for (size_t column = 0; column < columns; ++column) add(row < rows ? static_cast<int64_t>(number(row, column)) : int64_t{0});
    }
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
