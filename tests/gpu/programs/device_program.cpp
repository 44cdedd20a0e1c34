#include "tests/gpu/programs/device_program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

constexpr int kSteps = 4;

Tensors run(const DeviceProgram& program, Setting setting) {
  at::manual_seed(static_cast<uint64_t>(setting.step) + 1);
  return program.run(setting);
}

Options with_kernels() {
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  options.verify = true;
  return options;
}

}  // namespace

at::Tensor Setting::on_device(const at::Tensor& tensor) const { return tensor.to(device); }
at::Tensor Setting::constant(at::IntArrayRef sizes) const { return on_device(at::randn(sizes, at::kDouble).to(values).to(type)); }
at::Tensor Setting::leaf(at::IntArrayRef sizes) const { return constant(sizes).set_requires_grad(true); }
at::Tensor Setting::integers(int64_t end, at::IntArrayRef sizes) const { return on_device(at::randint(end, sizes, at::kLong)); }

void backward_of(const at::Tensor& result, const Setting& setting) {
  result.backward(setting.constant(result.sizes()).to(result.scalar_type()));
}

Tensors grads_of(const Tensors& leaves) {
  Tensors grads;
  for (const at::Tensor& leaf : leaves) grads.push_back(leaf.grad().defined() ? leaf.grad() : at::empty({0}, leaf.options()));
  return grads;
}

const std::vector<DeviceProgram>& device_programs() {
  static const auto* const all = [] {
    auto* programs = new std::vector<DeviceProgram>;
    for (const auto& some : {pointwise_programs(), row_programs(), leaf_programs(), engine_programs()})
      programs->insert(programs->end(), some.begin(), some.end());
    return programs;
  }();
  return *all;
}

void expect_like_stock(const DeviceProgram& program, c10::Device device, c10::Device other) {
  for (const at::ScalarType type : program.types) {
    SCOPED_TRACE(c10::toString(type));
    hindcast::reset();
    for (int step = 0; step < kSteps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const Setting setting{device, other, type, type, step};
      const Tensors stock = run(program, setting), truth = run(program, {device, other, at::kDouble, type, step});
      Tensors ours;
      {
        const auto guard = hindcast::enable(with_kernels());
        ours = run(program, setting);
      }
      ASSERT_EQ(ours.size(), stock.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        SCOPED_TRACE("result " + std::to_string(i));
        const bool is_double = type == at::kDouble;
        expect_near(ours[i], stock[i], is_double ? stock[i] : truth[i], is_double ? program.units_in_double : program.units,
                    !is_double && i < program.terms.size() ? program.terms[i] : 0);
      }
    }
    const Stats stats = hindcast::stats();
    EXPECT_GT(stats.hits, 0U) << stats;
    EXPECT_EQ(stats.refused_graphs + stats.compiler_failures, 0U) << stats;
  }
}

}  // namespace hindcast::tests
