// A function whose forward and backward are traced together: first both programs are printed, then fused, then fused with cheap values
// recomputed instead of saved. Each time the gradients equal those of the function itself.

#include <hindcast/aot.h>
#include <hindcast/graph.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

namespace {

using torch::Tensor;

Tensor fn(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
  const Tensor x = a + b + c + d;
  return x.cos().cos();
}

// A custom compiler: it gets a program with inputs like those of later calls, and returns the function that runs it.
hindcast::ProgramFunction compiler_fn(const std::shared_ptr<const hindcast::Graph>& program, const std::vector<Tensor>& /*inputs*/) {
  std::cout << program->print() << '\n';
  return [program](const std::vector<Tensor>& inputs) { return hindcast::run_program(*program, inputs); };
}

std::vector<Tensor> four(torch::IntArrayRef sizes) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 4; ++i) leaves.push_back(torch::randn(sizes, torch::requires_grad()));
  return leaves;
}

template <class Function>
std::vector<Tensor> gradients(const Function& function, const std::vector<Tensor>& in) {
  return torch::autograd::grad({function(in[0], in[1], in[2], in[3]).sum()}, in);
}

template <class Function>
void compare(const std::string& what, const Function& function) {
  const auto in = four({2, 4});
  const auto expected = gradients(fn, in);
  bool is_equal = true;
  for (int call = 0; call < 2; ++call) {  // the first call is the trace, the second runs the programs
    const auto given = gradients(function, in);
    for (size_t i = 0; i < 4; ++i) is_equal = is_equal && torch::allclose(given[i], expected[i]);
  }
  std::cout << what << ": the gradients are " << (is_equal ? "the function's" : "WRONG") << '\n';
}

template <class Function>
void time(const std::string& what, const Function& function, const std::vector<Tensor>& in) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> forward, backward;
  for (int step = 0; step < 25; ++step) {
    for (const Tensor& leaf : in) leaf.mutable_grad() = Tensor();
    const auto start = Clock::now();
    const Tensor result = function(in[0], in[1], in[2], in[3]);
    const auto between = Clock::now();
    const Tensor loss = result.sum();
    const auto before = Clock::now();
    loss.backward();
    const auto stop = Clock::now();
    if (step < 5) continue;
    forward.push_back(std::chrono::duration<double, std::milli>(between - start).count());
    backward.push_back(std::chrono::duration<double, std::milli>(stop - before).count());
  }
  const auto median = [](std::vector<double>& of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
  };
  std::cout << what << ": forward " << median(forward) << " ms, backward " << median(backward) << " ms\n";
}

}  // namespace

int main() {
  hindcast::AotOptions printing;
  printing.fw_compiler = printing.bw_compiler = compiler_fn;
  compare("printed", hindcast::aot_function(fn, printing));

  // Cheap values are recomputed: one tensor is saved, not two.
  printing.partition = hindcast::partition::min_cut;
  compare("printed, min-cut", hindcast::aot_function(fn, printing));

  hindcast::AotOptions standard, min_cut;
  min_cut.partition = hindcast::partition::min_cut;
  standard.async = min_cut.async = false;  // kernels are ready for the second call
  const auto fused = hindcast::aot_function(fn, standard), recomputing = hindcast::aot_function(fn, min_cut);
  compare("fused", fused);
  compare("fused, min-cut", recomputing);
  std::cout << hindcast::get_graphs(recomputing).front().explanation << '\n';

  const auto large = four({1024, 2048});
  time("as it is      ", fn, large);
  time("fused         ", fused, large);
  time("fused, min-cut", recomputing, large);
}
