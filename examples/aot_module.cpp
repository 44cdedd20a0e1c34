// A module compiled ahead of time: ResNet-18. Its parameters and running statistics stay the module's, which can be used as before.

#include <hindcast/aot.h>
#include <hindcast/graph.h>
#include <hindcast/hindcast.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "examples/resnet18.h"

namespace {

// Prints the size of a program, and lets ATen run it.
hindcast::ProgramCompiler tell(const std::string& name) {
  return
      [name](const std::shared_ptr<const hindcast::Graph>& program, const std::vector<torch::Tensor>& inputs) -> hindcast::ProgramFunction {
        std::cout << name << ": " << program->instrs.size() << " operators, " << inputs.size() << " inputs, " << program->outputs.size()
                  << " outputs\n";
        return [program](const std::vector<torch::Tensor>& given) { return hindcast::run_program(*program, given); };
      };
}

template <class Net>
torch::Tensor step(const Net& net, const torch::Tensor& images) {
  return net(images.cos()).sin().sum();
}

}  // namespace

int main() {
  torch::manual_seed(0);
  ResNet18 net;
  const auto images = torch::randn({1, 3, 64, 64});

  hindcast::AotOptions options;
  options.fw_compiler = tell("forward");
  options.bw_compiler = tell("backward");
  const auto printed = hindcast::aot_module(net, options);
  step(printed, images).backward();  // traced: later calls run the programs

  const auto compiled = hindcast::aot_module(net);
  net->eval();  // its running statistics are now fixed, so that all calls can be compared
  net->zero_grad();
  step([&](const torch::Tensor& x) { return net->forward(x); }, images).backward();
  const auto expected = net->conv1->weight.grad().clone();
  for (int call = 0; call < 3; ++call) {
    net->zero_grad();
    step(compiled, images).backward();
    hindcast::wait();  // for the kernels; a program would continue meanwhile
  }
  const bool is_near = torch::allclose(net->conv1->weight.grad(), expected, 1e-3, 1e-4 * expected.abs().max().item<double>());
  const hindcast::AotStats stats = compiled.stats();
  std::cout << stats.traces << " traced, " << stats.hits << " by the programs; the gradients are " << (is_near ? "the module's" : "WRONG")
            << '\n';
  return is_near ? 0 : 1;
}
