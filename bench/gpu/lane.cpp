#include "bench/gpu/lane.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "bench/gpu/moment.h"

namespace hindcast::bench::gpu {
namespace {

using at::Tensor;

std::vector<Tensor> gradients(const Lane& lane, const Workload& work) {
  at::manual_seed(7);  // dropout must draw the same masks in both engines
  work.clear_grads();
  const Tensor root = work.forward();
  under_engine(lane, [&] { root.backward(work.incoming); });
  std::vector<Tensor> all;
  for (const Tensor& leaf : work.leaves) all.push_back(leaf.grad());
  return all;
}

}  // namespace

Options with_kernels() {
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  return options;
}

Options with_graphs() {
  Options options = with_kernels();
  options.cuda_graphs = true;
  return options;
}

void run_round(Lane& lane, const std::vector<Workload>& copies, c10::Device device) {
  std::vector<Tensor> roots;
  std::vector<Moment> begins, ends;
  for (const Workload& work : copies) {
    work.clear_grads();
    begins.emplace_back(device);
    ends.emplace_back(device);
    roots.push_back(work.forward());
  }
  wait_for(device);
  under_engine(lane, [&] {
    for (size_t i = 0; i < copies.size(); ++i) {
      begins[i].record(device);
      const Clock::time_point start = Clock::now();
      roots[i].backward(copies[i].incoming);
      lane.host_us.push_back(microseconds_since(start));
      ends[i].record(device);
    }
  });
  wait_for(device);
  for (size_t i = 0; i < copies.size(); ++i) lane.device_us.push_back(begins[i].microseconds_until(ends[i]));
}

void run_steps(Lane& lane, const Workload& work, c10::Device device, int steps) {
  for (int i = 0; i < steps; ++i) {
    work.clear_grads();
    const Tensor root = work.forward();
    wait_for(device);
    const Clock::time_point start = Clock::now();
    under_engine(lane, [&] { root.backward(work.incoming); });
    lane.host_us.push_back(microseconds_since(start));
    wait_for(device);
    lane.device_us.push_back(microseconds_since(start));
  }
}

double difference(const Tensor& expected, const Tensor& seen) {
  const Tensor wanted = expected.to(at::kDouble);
  return (seen.to(at::kDouble) - wanted).norm().item<double>() / std::max(wanted.norm().item<double>(), 1e-30);
}

double most_by_rounding(const Tensor& of_type) { return of_type.element_size() == 2 ? 1e-2 : 1e-5; }

std::string differing_gradients(const Lane& stock, const Lane& ours, const Workload& work) {
  const std::vector<Tensor> expected = gradients(stock, work);
  for (int call = 1; call <= 3; ++call) {
    const std::vector<Tensor> seen = gradients(ours, work);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = difference(expected[i], seen[i]);
      if (!(error <= most_by_rounding(expected[i])))
        return "gradient of leaf " + std::to_string(i) + " in hindcast's backward " + std::to_string(call) + " is wrong by " +
               std::to_string(error) + ": nothing was timed; run the tests";
    }
  }
  return {};
}

}  // namespace hindcast::bench::gpu
