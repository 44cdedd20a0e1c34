#include "tests/bindings/binding.h"

#include <torch/types.h>

#include <atomic>

namespace {

std::atomic<int64_t> living = 0;

at::Tensor& of(tensor t) { return *static_cast<at::Tensor*>(t); }
tensor new_tensor(at::Tensor t) {
  ++living;
  return new at::Tensor(std::move(t));
}

}  // namespace

extern "C" {

tensor at_linspace(double start, double end, int64_t steps) { return new_tensor(torch::linspace(start, end, steps)); }
void at_set_requires_grad(tensor t, int32_t requires_grad) { of(t).set_requires_grad(requires_grad != 0); }
tensor at_mul(tensor a, tensor b) { return new_tensor(of(a) * of(b)); }
tensor at_sin(tensor a) { return new_tensor(of(a).sin()); }
tensor at_sum(tensor a) { return new_tensor(of(a).sum()); }
void at_backward(tensor t, int32_t keep_graph, int32_t create_graph) { of(t).backward({}, keep_graph != 0, create_graph != 0); }
tensor at_grad(tensor t) { return new_tensor(of(t).grad()); }
double at_double_value_at(tensor t, int64_t index) { return of(t).view({-1})[index].item<double>(); }
void at_free(tensor t) {
  --living;
  delete static_cast<at::Tensor*>(t);
}
int64_t at_living() { return living; }
}
