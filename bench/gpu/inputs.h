#pragma once
// What the rows' functions are made of (workloads.cpp, seed_rows.cpp).

#include "bench/gpu/workloads.h"

#include <ATen/ATen.h>

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

/// The tensors of a pattern: `x` of the sizes, the others of the last one.
struct Inputs {
  Source source;
  at::Tensor x, weight, bias;
  double rows, width;

  Inputs(at::IntArrayRef sizes, const Source& from)
      : source(from),
        x(from.leaf(sizes)),
        weight((from.numbers({sizes.back()}).abs() + 0.5).set_requires_grad(true)),
        bias(from.leaf({sizes.back()})),
        rows(static_cast<double>(x.numel()) / static_cast<double>(sizes.back())),
        width(static_cast<double>(sizes.back())) {}

  at::Tensor leaf() const { return source.leaf(x.sizes()); }
  double bytes() const { return static_cast<double>(x.nbytes()); }

  // Parts of `x` that other tensors are as large as.
  double mask() const { return 1.0 / static_cast<double>(x.element_size()); }                         // of a byte an element
  double of_width() const { return 1.0 / rows; }                                                      // as weight and bias are
  double of_rows() const { return sizeof(float) / (width * static_cast<double>(x.element_size())); }  // a float for each row
};

/// `passes`: tensors as large as `x` that a perfect backward reads or writes.
inline Workload pattern(const Inputs& in, std::vector<at::Tensor> leaves, double passes, std::function<at::Tensor()> forward) {
  Workload work{std::move(leaves), std::move(forward)};
  work.incoming = in.source.numbers(work.forward().sizes());
  work.floor_bytes = passes * in.bytes();
  return work;
}

/// The same of a function that reads its leaves alone.
inline Workload of_leaves(const Inputs& in, const std::vector<at::Tensor>& leaves, double passes, Function function) {
  return pattern(in, leaves, passes, [=] { return function(leaves); });
}

/// at::dropout is this one on a card, with a mask of bytes, and another one on the CPU.
inline at::Tensor dropout(const at::Tensor& y) { return std::get<0>(at::native_dropout(y, 0.1, /*train=*/true)); }

struct Named {
  std::string name;
  Workload (*build)(at::IntArrayRef sizes, const Source& from);
  Function function = nullptr;  // of a workload of_leaves()
};

inline Row row_of(const Named& one, const std::vector<int64_t>& sizes, at::ScalarType type) {
  std::string name = one.name;
  for (size_t i = 0; i < sizes.size(); ++i) name += (i == 0 ? "/" : "x") + std::to_string(sizes[i]);
  name += type == at::kFloat ? "/float32" : type == at::kHalf ? "/float16" : "/bfloat16";
  const auto build = [build = one.build, sizes, type](const Place& place) {
    return build(sizes, {at::TensorOptions(place.device).dtype(type), place.zeros});
  };
  return {name, build, one.function};
}

}  // namespace hindcast::bench::gpu
