#pragma once
// Which computes a matrix product of some sizes faster on this machine: our kernel, or ATen followed by a kernel for the rest of the body.

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <optional>

namespace hindcast::codegen::cpu {

struct ProductSizes {
  int64_t batch = 1, rows = 0, columns = 0, depth = 0;
  int64_t kind = 0;  // of the kernel: its type and how its factors lie
  bool operator==(const ProductSizes&) const = default;
};

/// Sizes that are measured as one, so that a program whose sizes change in every call is not measured in every call: rows by blocks of the
/// kernel, larger sizes by eighths of an octave. Columns that fill whole vectors and columns that do not are never one.
ProductSizes class_of(const ProductSizes& sizes);

/// Which is faster by enough measurements of the class; nullopt: it must be measured (again).
std::optional<bool> find_choice(const ProductSizes& sizes);

/// Runs both some times, unless find_choice() knows, and says whether `ours` is the faster one: by the least times that this process has seen, those of earlier calls for
/// the same class of sizes included. Times are of this thread's CPU, or where LibTorch has more threads, of the clock. Safe from many threads and
/// across forks: it takes no lock.
bool is_ours_faster(const ProductSizes& sizes, c10::function_ref<void()> ours, c10::function_ref<void()> atens);

enum class ProductChoice : uint8_t { Measured, Ours, Atens };
/// For tests: from now on both give this answer without running either.
void set_product_choice(ProductChoice choice);

}  // namespace hindcast::codegen::cpu
