// What an engine has to handle: models, hooks, requested inputs, retained graphs, streams and devices.

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "examples/digits/models.h"
#include "tests/gpu/programs/device_program.h"

namespace hindcast::tests {
namespace {

at::Tensor some_ops(const Tensors& x) { return (x[0] * x[1]).tanh() * x[0] + x[1].sigmoid(); }
Tensors two_leaves(const Setting& setting) { return {setting.leaf({17, 33}), setting.leaf({17, 33})}; }

// Without dropout, which draws other numbers in another dtype.
Tensors model(const digits::Recipe& recipe, const Setting& setting) {
  const auto model = recipe.make();
  model->to(setting.values);
  model->to(setting.device, setting.type);
  if (recipe.name == "transformer") model->eval();
  const at::Tensor images = setting.constant({9 + setting.step % 2, 1, 8, 8}), labels = setting.integers(10, {images.size(0)});
  at::cross_entropy_loss(model->forward(images), labels).backward();
  return grads_of(model->parameters());
}

Tensors layers(const Setting& setting) {
  Tensors leaves;
  at::Tensor x = setting.constant({21, 40});
  for (const int64_t width : {64, 33, 7}) {
    leaves.push_back(setting.leaf({width, x.size(1)}));
    leaves.push_back(setting.leaf({width}));
    const at::Tensor weight = leaves[leaves.size() - 2] * 0.2;
    x = at::gelu(at::linear(x, weight, leaves.back()), width == 33 ? "tanh" : "none");
  }
  backward_of(x, setting);
  return grads_of(leaves);
}

Tensors hooks(const Setting& setting) {
  const Tensors leaves = two_leaves(setting);
  Tensors seen;
  const auto see = [&](const at::Tensor& gradient) { seen.push_back(gradient.detach().clone()); };
  const at::Tensor inner = leaves[0] * 2, y = some_ops({inner, leaves[1]});
  inner.register_hook(see);
  y.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
  leaves[1].register_hook(see);
  inner.retain_grad();
  backward_of(y.exp() * leaves[1], setting);
  seen.push_back(inner.grad());
  for (const at::Tensor& gradient : grads_of(leaves)) seen.push_back(gradient);
  return seen;
}

Tensors grad_of_inputs(const Setting& setting) {
  const Tensors leaves{setting.leaf({17, 33}), setting.leaf({17, 33}), setting.leaf({33})};
  const at::Tensor inner = leaves[0] * 2, y = some_ops({inner, leaves[1]}) + leaves[2];
  Tensors given = torch::autograd::grad({y}, {inner, leaves[2]}, {setting.constant(y.sizes())});
  for (const at::Tensor& gradient : grads_of(leaves)) given.push_back(gradient);
  return given;
}

Tensors kept_graph(const Setting& setting) {
  const Tensors leaves = two_leaves(setting);
  const at::Tensor y = some_ops(leaves), gradient = setting.constant(y.sizes());
  y.backward(gradient, /*retain_graph=*/true);
  y.backward(gradient, /*retain_graph=*/true);
  y.backward(gradient);
  return grads_of(leaves);
}

Tensors accumulation(const Setting& setting) {
  const Tensors leaves{setting.leaf({8, 12}), setting.leaf({8})};
  for (int i = 0; i < 4; ++i) backward_of(at::gelu(at::linear(setting.constant({6, 12}), leaves[0], leaves[1])), setting);
  return grads_of(leaves);
}

// A number on the CPU among tensors of a device; it is a leaf as well.
Tensors number_on_cpu(const Setting& setting) {
  Tensors leaves = two_leaves(setting);
  const at::Tensor number = at::scalar_tensor(0.75, setting.type), scale = at::scalar_tensor(1.25, setting.type).set_requires_grad(true);
  backward_of(some_ops({leaves[0] * number, leaves[1]}) * scale, setting);
  leaves.push_back(scale);
  return grads_of(leaves);
}

// The backward of what was computed on another stream runs there.
Tensors two_streams(const Setting& setting) {
  const Tensors leaves = two_leaves(setting);
  if (setting.device.is_cpu()) {
    backward_of(some_ops({leaves[0].tanh() * 2, leaves[1]}), setting);
    return grads_of(leaves);
  }
  const c10::impl::VirtualGuardImpl streams(setting.device.type());
  const c10::Stream here = streams.getStream(setting.device), there = streams.getStreamFromGlobalPool(setting.device);
  c10::Event before(setting.device.type()), after(setting.device.type());
  before.record(here);
  before.block(there);
  at::Tensor inner;
  {
    const c10::StreamGuard on_it(there);
    inner = leaves[0].tanh() * 2;
    after.record(there);
  }
  after.block(here);
  inner.record_stream(here);
  backward_of(some_ops({inner, leaves[1]}), setting);
  return grads_of(leaves);
}

Tensors two_devices(const Setting& setting) {
  const Tensors leaves = two_leaves(setting);
  const at::Tensor there = some_ops(leaves).to(setting.other);
  const at::Tensor y = (there.tanh() * there).to(setting.device) * leaves[0];
  backward_of(y, setting);
  return grads_of(leaves);
}

}  // namespace

std::vector<DeviceProgram> engine_programs() {
  std::vector<DeviceProgram> programs = {
      {"Layers", layers, kFloats, {}, 64},
      {"Hooks", hooks, kFloats},
      {"GradOfInputs", grad_of_inputs, kFloats},
      {"KeptGraph", kept_graph, kFloats},
      {"Accumulation", accumulation, kFloats},
      {"NumberOnCpu", number_on_cpu, {at::kFloat, at::kDouble}, {}, 64},
      {"TwoStreams", two_streams},
      {"TwoDevices", two_devices},
  };
  for (const digits::Recipe& recipe : digits::recipes())
    programs.push_back(
        {"Model_" + recipe.name, [&recipe](const Setting& setting) { return model(recipe, setting); }, {at::kFloat}, {}, 64});
  return programs;
}

}  // namespace hindcast::tests
