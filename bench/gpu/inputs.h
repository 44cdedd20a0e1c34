#pragma once
// Building blocks of the rows' functions (workloads.cpp, seed_rows.cpp).

#include "bench/gpu/workloads.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hindcast::bench::gpu {

/// Where tensors come from.
struct Source {
  at::TensorOptions options;
  bool zeros = false;

  at::Tensor numbers(at::IntArrayRef sizes) const { return zeros ? at::zeros(sizes, options) : at::randn(sizes, options); }
  at::Tensor leaf(at::IntArrayRef sizes) const { return numbers(sizes).set_requires_grad(true); }
};

using Function = at::Tensor (*)(const std::vector<at::Tensor>& leaves);

/// The size of a pattern's `x`, and the sizes of other tensors relative to it.
struct Proportions {
  double rows, width, element_bytes;

  Proportions(at::IntArrayRef sizes, at::ScalarType type)
      : rows(static_cast<double>(c10::multiply_integers(sizes.slice(0, sizes.size() - 1)))),
        width(static_cast<double>(sizes.back())),
        element_bytes(static_cast<double>(at::elementSize(type))) {}

  double bytes() const { return rows * width * element_bytes; }
  double mask() const { return 1.0 / element_bytes; }                         // one byte per element
  double of_width() const { return 1.0 / rows; }                              // as for weight and bias
  double of_rows() const { return sizeof(float) / (width * element_bytes); }  // a float per row
};

/// The tensors of a pattern: `x` of the sizes, the others of the last one.
struct Inputs : Proportions {
  Source source;
  at::Tensor x, weight, bias;

  Inputs(at::IntArrayRef sizes, const Source& from)
      : Proportions(sizes, from.options.dtype().toScalarType()),
        source(from),
        x(from.leaf(sizes)),
        weight((from.numbers({sizes.back()}).abs() + 0.5).set_requires_grad(true)),
        bias(from.leaf({sizes.back()})) {}

  at::Tensor leaf() const { return source.leaf(x.sizes()); }
};

/// `passes`: tensors as large as `x` that a perfect backward reads or writes.
inline Workload pattern(const Inputs& in, std::vector<at::Tensor> leaves, double passes, std::function<at::Tensor()> forward) {
  Workload work{std::move(leaves), std::move(forward)};
  work.incoming = in.source.numbers(work.forward().sizes());
  work.floor_bytes = passes * in.bytes();
  return work;
}

/// The same for a function that reads only its leaves.
inline Workload of_leaves(const Inputs& in, const std::vector<at::Tensor>& leaves, double passes, Function function) {
  return pattern(in, leaves, passes, [=] { return function(leaves); });
}

/// On a card at::dropout is this op, with a mask of bytes, and another one on the CPU.
inline at::Tensor dropout(const at::Tensor& y) { return std::get<0>(at::native_dropout(y, 0.1, /*train=*/true)); }

struct Named {
  std::string name;
  Workload (*build)(at::IntArrayRef sizes, const Source& from);
  Function function = nullptr;                              // of a workload of_leaves()
  double (*whole_passes)(const Proportions& of) = nullptr;  // of the function: whole_floor_bytes as tensors as large as `x`
};

inline Row row_of(const Named& one, const std::vector<int64_t>& sizes, at::ScalarType type) {
  std::string name = one.name;
  for (size_t i = 0; i < sizes.size(); ++i) name += (i == 0 ? "/" : "x") + std::to_string(sizes[i]);
  name += type == at::kFloat ? "/float32" : type == at::kHalf ? "/float16" : "/bfloat16";
  const auto build = [build = one.build, sizes, type](const Place& place) {
    return build(sizes, {at::TensorOptions(place.device).dtype(type), place.zeros});
  };
  const Proportions of(sizes, type);
  return {name, build, one.function, one.whole_passes == nullptr ? 0 : one.whole_passes(of) * of.bytes()};
}

}  // namespace hindcast::bench::gpu
