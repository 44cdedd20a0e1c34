#pragma once
// Measures what computes a matrix product faster on this machine: our kernel, or ATen followed by a kernel for the rest of the body.

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <optional>

namespace hindcast::codegen::cpu {

struct ProductSizes {
  int64_t batch = 1, rows = 0, columns = 0, depth = 0;
  int64_t kind = 0;  // of the kernel: its type and the layouts of its factors
  bool operator==(const ProductSizes&) const = default;
};

/// Maps sizes to a representative of a class that shares one measurement, so that a program whose sizes change in every call is not
/// measured in every call: rows are rounded to blocks of the kernel, larger sizes to eighths of an octave. Sizes whose columns fill whole
/// vectors and sizes whose columns do not are never in one class.
ProductSizes class_of(const ProductSizes& sizes);

/// Whether our kernel is faster, if there are enough measurements of the class; nullopt if it must be measured (again).
std::optional<bool> find_choice(const ProductSizes& sizes);

/// Whether `ours` is faster. Runs both several times, unless find_choice() has the answer, and compares the minimum times of this process,
/// including those of earlier calls for the same class of sizes. Times are CPU times of this thread if LibTorch has one thread, otherwise
/// wall-clock times. Thread-safe and fork-safe: it takes no lock.
bool is_ours_faster(const ProductSizes& sizes, c10::function_ref<void()> ours, c10::function_ref<void()> atens);

enum class ProductChoice : uint8_t { Measured, Ours, Atens };
/// For tests: fixes the answer of both functions, which then run neither.
void set_product_choice(ProductChoice choice);

}  // namespace hindcast::codegen::cpu
