#pragma once
// The modules of torch::nn that both engines train, one row each: a name, how to create it, its inputs.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hindcast::tests {

/// A module made for one run, and its forward from inputs of `batch` rows to anything a loss can be made of.
struct ModuleUnderTest {
  std::shared_ptr<torch::nn::Module> module;
  std::function<std::vector<at::Tensor>(int64_t batch)> inputs;
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs)> forward;
};

struct ModuleRow {
  std::string name;
  std::function<ModuleUnderTest()> make;
};

using Sizes = std::vector<int64_t>;

inline at::Tensor real_input(int64_t batch, Sizes sizes) {
  sizes.insert(sizes.begin(), batch);
  return at::randn(sizes).set_requires_grad(true);
}

/// A module of one real input with these sizes after the batch.
template <class Module>
ModuleRow unary(std::string name, std::function<Module()> make, Sizes sizes) {
  return {std::move(name), [make, sizes]() -> ModuleUnderTest {
            auto module = make();
            return {module.ptr(), [sizes](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, sizes)}; },
                    [module](const std::vector<at::Tensor>& in) mutable { return module(in[0]); }};
          }};
}

/// A loss of a prediction and a target, which `target` computes from the prediction.
template <class Module>
ModuleRow loss(std::string name, std::function<Module()> make, Sizes sizes,
               std::function<at::Tensor(const at::Tensor& prediction)> target) {
  return {std::move(name), [make, sizes, target]() -> ModuleUnderTest {
            auto module = make();
            return {module.ptr(),
                    [sizes, target](int64_t batch) {
                      const auto prediction = real_input(batch, sizes);
                      return std::vector<at::Tensor>{prediction, target(prediction.detach())};
                    },
                    [module](const std::vector<at::Tensor>& in) mutable { return module(in[0], in[1]); }};
          }};
}

/// Everything else: the row gives the inputs and the call.
template <class Module>
ModuleRow custom(std::string name, std::function<Module()> make, std::function<std::vector<at::Tensor>(int64_t batch)> inputs,
                 std::function<at::Tensor(Module&, const std::vector<at::Tensor>&)> forward) {
  return {std::move(name), [make, inputs, forward]() -> ModuleUnderTest {
            auto module = make();
            return {module.ptr(), inputs, [module, forward](const std::vector<at::Tensor>& in) mutable { return forward(module, in); }};
          }};
}

}  // namespace hindcast::tests
