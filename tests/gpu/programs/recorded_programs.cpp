#include "tests/gpu/programs/recorded_programs.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/library.h>

#include <memory>
#include <stdexcept>

#include "engine/cuda_graphs/recorded_region.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// Tensors of one device.
struct Maker {
  c10::Device device;

  Tensor constant(uint64_t seed, c10::IntArrayRef sizes) const { return at::randn(sizes, at::detail::createCPUGenerator(seed)).to(device); }
  Tensor leaf(uint64_t seed, c10::IntArrayRef sizes = {4, 4}) const { return constant(seed, sizes).requires_grad_(); }

  /// A few more steps: products, with kernels between.
  Tensor deep(Tensor x) const {
    const int64_t width = x.size(-1);
    for (uint64_t layer = 0; layer < 3; ++layer) x = (at::mm(x, constant(100 + layer, {width, width}) / 4).tanh() * 2).sin() + x;
    return x;
  }
};

/// Two layers and a loss.
struct Net : Maker {
  Tensors weights = {leaf(1, {8, 16}), leaf(2, {16}), leaf(3, {16, 4}), leaf(4, {4})};

  explicit Net(c10::Device where) : Maker{where} {}
  Tensor operator()(const Tensor& x) const {
    const Tensor hidden = at::tanh(at::mm(x, weights[0]) + weights[1]) * 2;
    return at::sigmoid(at::mm(hidden, weights[2]) + weights[3]).pow(2).mean();
  }
  Tensor loss(int step, int64_t rows = 5) const { return (*this)(constant(10 + static_cast<uint64_t>(step), {rows, 8})); }
};

void forget_grads(const Tensors& leaves) {
  for (const Tensor& one : leaves) one.mutable_grad().reset();
}

Tensors grads_of(const Tensors& leaves) {
  Tensors grads;
  for (const Tensor& one : leaves) grads.push_back(one.grad());
  return grads;
}

RecordedStep whole_backward(c10::Device device) {
  return [net = Net(device)](int step) {
    forget_grads(net.weights);
    net.loss(step).backward();
    return grads_of(net.weights);
  };
}

RecordedStep gradients_that_are_there(c10::Device device) {
  return [net = Net(device)](int step) {
    if (step % 4 == 3) forget_grads(net.weights);
    if (step == 6) net.weights[1].mutable_grad().reset();  // only some of them
    net.loss(step).backward();
    return grads_of(net.weights);
  };
}

RecordedStep kept_gradients(c10::Device device) {
  return [net = Net(device), kept = Tensors()](int step) mutable {
    forget_grads(net.weights);
    net.loss(step).backward();
    for (const Tensor& weight : net.weights) kept.push_back(weight.grad());
    return kept;
  };
}

RecordedStep gradients_that_share_memory(c10::Device device) {
  return [net = Net(device)](int step) {
    if (step == 0) {
      const Tensor all = at::zeros({132}, net.device);
      net.weights[1].mutable_grad() = all.slice(0, 0, 16);
      net.weights[3].mutable_grad() = all.slice(0, 14, 18);
    }
    net.loss(step).backward();
    return grads_of(net.weights);
  };
}

RecordedStep results_of_grad(c10::Device device) {
  return [net = Net(device), kept = Tensors()](int step) mutable {
    const Tensor x = net.constant(10 + static_cast<uint64_t>(step), {5, 8}).requires_grad_();
    for (const Tensor& one : torch::autograd::grad({net(x)}, {x, net.weights[2]})) kept.push_back(one);
    return kept;
  };
}

RecordedStep moving_inputs(c10::Device device) {
  return [net = Net(device), held = Tensors()](int step) mutable {
    forget_grads(net.weights);
    held.push_back(net.constant(10 + static_cast<uint64_t>(step), {5, 8}));  // the next one has another address
    net(held.back()).backward();
    return grads_of(net.weights);
  };
}

RecordedStep an_input_that_begins_to_move(c10::Device device) {
  return [net = Net(device), held = Tensors()](int step) mutable {
    forget_grads(net.weights);
    const Tensor x = net.constant(10 + static_cast<uint64_t>(step), {5, 8});
    if (step > 5) held.push_back(x);
    net(x).backward();
    return grads_of(net.weights);
  };
}

// 1 MiB: too large to be copied.
RecordedStep a_large_input_of_kernels(c10::Device device) {
  const Maker maker{device};
  return [maker, w = maker.leaf(1, {512, 512}), held = Tensors()](int step) mutable {
    forget_grads({w});
    held.push_back(maker.constant(10 + static_cast<uint64_t>(step), {512, 512}));
    maker.deep(at::tanh(w * held.back()).sum({1}).view({64, 8})).sum().backward();
    return grads_of({w});
  };
}

// A norm's kernel with sums over rows, which a second launch finishes, and each element's gradient.
RecordedStep a_large_input_of_a_norms_kernels(c10::Device device) {
  const Maker maker{device};
  const Tensors leaves = {maker.leaf(1, {512, 512}), maker.leaf(2, {512}), maker.leaf(3, {512})};
  return [maker, leaves, held = Tensors()](int step) mutable {
    forget_grads(leaves);
    held.push_back(maker.constant(10 + static_cast<uint64_t>(step), {512, 512}));
    const Tensor normed = at::layer_norm(leaves[0] * held.back(), {512}, leaves[1], leaves[2]);
    maker.deep(normed.sum({1}).view({64, 8})).sum().backward();
    return grads_of(leaves);
  };
}

// It is transposed: ATen copies it first, for the kernel.
RecordedStep a_large_input_that_is_copied_for_kernels(c10::Device device) {
  const Maker maker{device};
  return [maker, w = maker.leaf(1, {512, 512}), held = Tensors()](int step) mutable {
    forget_grads({w});
    held.push_back(maker.constant(10 + static_cast<uint64_t>(step), {512, 512}));
    maker.deep(at::softmax(w * held.back().t(), 1).sin().sum({1}).view({64, 8})).sum().backward();
    return grads_of({w});
  };
}

RecordedStep a_large_input_of_atens(c10::Device device) {
  const Maker maker{device};
  return [maker, w = maker.leaf(1, {512, 4}), held = Tensors()](int step) mutable {
    forget_grads({w});
    held.push_back(maker.constant(10 + static_cast<uint64_t>(step), {512, 512}));
    maker.deep(at::tanh(at::mm(held.back(), w))).sum().backward();
    return grads_of({w});
  };
}

// Its address changes once, and stays.
RecordedStep a_large_input_of_atens_that_moves_once(c10::Device device) {
  const Maker maker{device};
  return [maker, w = maker.leaf(1, {512, 4}), held = Tensors()](int step) mutable {
    forget_grads({w});
    const Tensor x = maker.constant(10 + static_cast<uint64_t>(step), {512, 512});
    if (step == 6) held.push_back(x);
    maker.deep(at::tanh(at::mm(x, w))).sum().backward();
    return grads_of({w});
  };
}

// `a` gets the root's gradient itself, without the conjugation.
RecordedStep a_conjugated_input(c10::Device device) {
  const Maker maker{device};
  const auto complex = [maker](uint64_t seed) { return at::complex(maker.constant(seed, {4, 4}), maker.constant(seed + 1, {4, 4})); };
  return [maker, complex, a = complex(1).requires_grad_(), b = maker.leaf(3)](int step) {
    forget_grads({a, b});
    const Tensor deep = maker.deep(b.tanh());
    (a.conj() + at::complex(deep, deep)).backward(complex(10 + static_cast<uint64_t>(step)).conj());
    return Tensors{at::view_as_real(a.grad().resolve_conj()), b.grad()};
  };
}

// Like an extension's operator, which may ignore streams.
Tensor twice(const Tensor& x) { return x * 2; }
TORCH_LIBRARY_FRAGMENT(hindcast_tests, library) {
  library.def("twice(Tensor x) -> Tensor");
  library.impl("twice", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(twice)));
}

struct TwiceByAnotherLibrary : torch::autograd::Function<TwiceByAnotherLibrary> {
  static constexpr bool is_traceable = true;
  static Tensor forward(torch::autograd::AutogradContext* /*context*/, const Tensor& x) { return twice(x); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/, torch::autograd::variable_list grads) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hindcast_tests::twice", "").typed<Tensor(const Tensor&)>();
    return {op.call(grads[0])};
  }
};

RecordedStep an_op_of_another_library(c10::Device device) {
  const Maker maker{device};
  return [maker, a = maker.leaf(1)](int step) {
    forget_grads({a});
    const Tensor x = maker.deep(at::mm(a.tanh(), maker.constant(10 + static_cast<uint64_t>(step), {4, 4})));
    maker.deep(TwiceByAnotherLibrary::apply(x)).sum().backward();
    return grads_of({a});
  };
}

// User code keeps the gradients that it gets.
RecordedStep hooks(c10::Device device) {
  return [net = Net(device), kept = std::make_shared<Tensors>()](int step) {
    forget_grads(net.weights);
    const Tensor x = net.constant(10 + static_cast<uint64_t>(step), {5, 8});
    const Tensor hidden = net.deep(at::tanh(at::mm(x, net.weights[0]) + net.weights[1]) * 2);
    hidden.register_hook([kept](const Tensor& gradient) {
      kept->push_back(gradient);
      return gradient * 3;
    });
    net.deep(at::sigmoid(at::mm(hidden, net.weights[2]) + net.weights[3]).pow(2)).mean().backward();
    Tensors seen = grads_of(net.weights);
    seen.insert(seen.end(), kept->begin(), kept->end());
    return seen;
  };
}

RecordedStep leaves_that_share_a_gradient(c10::Device device) {
  const Maker maker{device};
  return [maker, leaves = Tensors{maker.leaf(1), maker.leaf(2), maker.leaf(3, {4})}](int step) {
    if (step % 2 == 0) forget_grads(leaves);
    maker.deep((leaves[0] + leaves[1] + leaves[2]).tanh().mm(maker.constant(10 + static_cast<uint64_t>(step), {4, 4}))).sum().backward();
    return grads_of(leaves);
  };
}

RecordedStep results_that_are_views_of_inputs(c10::Device device) {
  const Maker maker{device};
  return [maker, leaves = Tensors{maker.leaf(1), maker.leaf(2, {16})}](int step) {
    forget_grads(leaves);
    const Tensor y = maker.deep(leaves[0].sin().exp()) + leaves[1].view({4, 4}).t();
    y.backward(maker.constant(10 + static_cast<uint64_t>(step), {4, 4}));
    return grads_of(leaves);
  };
}

RecordedStep expanded_gradients(c10::Device device) {
  const Maker maker{device};
  return [maker, leaves = Tensors{maker.leaf(1), maker.leaf(2)}](int step) {
    forget_grads(leaves);
    const Tensor factor = maker.constant(10 + static_cast<uint64_t>(step), {4, 4});
    (maker.deep(at::mm(leaves[0].tanh(), factor)).sum() * 2 + leaves[1].sum({0}).mul(3).sum()).backward();
    return grads_of(leaves);
  };
}

RecordedStep some_sizes(c10::Device device) {
  return [net = Net(device)](int step) {
    forget_grads(net.weights);
    net.loss(step, 2 + step % 3).backward();
    return grads_of(net.weights);
  };
}

// As Python makes one of the number in `x * 0.7`: to be read by a kernel, and by a product of ATen's.
RecordedStep numbers_of_the_host(c10::Device device) {
  const Maker maker{device};
  return [maker, a = maker.leaf(1)](int step) {
    forget_grads({a});
    const auto number = [](double value) { return at::native::wrapped_scalar_tensor(value); };
    const Tensor x = at::mm(a.tanh() * number(0.7), maker.constant(10 + static_cast<uint64_t>(step), {4, 4}));
    maker.deep(maker.deep(at::mm(x * number(3), maker.constant(9, {4, 4})) / number(0.3)).sin() * number(1.1)).sum().backward();
    return grads_of({a});
  };
}

RecordedStep a_number_of_the_host_that_changes(c10::Device device) {
  const Maker maker{device};
  return [maker, a = maker.leaf(1)](int step) {
    forget_grads({a});
    const Tensor scale = at::scalar_tensor(0.1 * step);  // on the CPU
    maker.deep(maker.deep(at::mm(a.tanh(), maker.constant(10 + static_cast<uint64_t>(step), {4, 4}))) * scale).sum().backward();
    return grads_of({a});
  };
}

}  // namespace

const std::vector<RecordedProgram>& recorded_programs() {
  static const auto* const programs = new std::vector<RecordedProgram>{
      {"WholeBackward", whole_backward},
      {"GradientsThatAreThere", gradients_that_are_there},
      {"KeptGradients", kept_gradients},
      {"GradientsThatShareMemory", gradients_that_share_memory},
      {"ResultsOfGrad", results_of_grad},
      {"MovingInputs", moving_inputs},
      {"AnInputThatBeginsToMove", an_input_that_begins_to_move},
      {"ALargeInputOfKernels", a_large_input_of_kernels},
      {"ALargeInputOfANormsKernels", a_large_input_of_a_norms_kernels},
      {"ALargeInputThatIsCopiedForKernels", a_large_input_that_is_copied_for_kernels, 0, "an op reads a large input"},
      {"ALargeInputOfAtens", a_large_input_of_atens, 0, "an op reads a large input that lies elsewhere"},
      {"ALargeInputOfAtensThatMovesOnce", a_large_input_of_atens_that_moves_once},
      {"AConjugatedInput", a_conjugated_input, 0, "its steps cannot be captured"},
      {"AnOpOfAnotherLibrary", an_op_of_another_library, 2},
      {"Hooks", hooks, 2},
      {"LeavesThatShareAGradient", leaves_that_share_a_gradient},
      {"ResultsThatAreViewsOfInputs", results_that_are_views_of_inputs},
      {"ExpandedGradients", expanded_gradients},
      {"SomeSizes", some_sizes, 1, "", 30},
      {"NumbersOfTheHost", numbers_of_the_host},
      {"ANumberOfTheHostThatChanges", a_number_of_the_host_that_changes, 2, "", 11, 2},
  };
  return *programs;
}

const RecordedProgram& recorded_program(const std::string& name) {
  for (const RecordedProgram& program : recorded_programs()) {
    if (program.name == name) return program;
  }
  throw std::invalid_argument("there is no program " + name);
}

Options without_graphs() { return {.compiler = compilers::fused(), .async = false}; }
Options with_graphs() { return {.compiler = compilers::fused(), .async = false, .cuda_graphs = true}; }

uint64_t launches_in(int steps) { return static_cast<uint64_t>(steps) - 1 - engine::kHitsBeforeRecording; }

std::vector<Tensors> run_recorded(const RecordedStep& step, const Options& options, int steps) {
  reset();
  std::vector<Tensors> seen;
  const auto guard = enable(options);
  for (int i = 0; i < steps; ++i) {
    seen.emplace_back();
    for (const Tensor& tensor : step(i)) seen.back().push_back(tensor.detach().to(at::kCPU).clone());
  }
  return seen;
}

Stats expect_as_without_graphs(const RecordedProgram& program, c10::Device device, const Options& options) {
  const auto expected = run_recorded(program.make(device), without_graphs(), program.steps);
  const auto seen = run_recorded(program.make(device), options, program.steps);
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(expected[i].size(), seen[i].size());
    for (size_t j = 0; j < std::min(expected[i].size(), seen[i].size()); ++j)
      EXPECT_EQ(first_difference(expected[i][j], seen[i][j]), "") << "step " << i << ", tensor " << j;
  }
  return stats();
}

}  // namespace hindcast::tests
