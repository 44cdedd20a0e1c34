#include "codegen/layouts/convolution_times.h"

#include "base/fork.h"

#include <ATen/Parallel.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

namespace hindcast::codegen {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 4;

bool is_last(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_contiguous();
}

at::Tensor image(const std::vector<int64_t>& sizes, at::MemoryFormat format) {
  return at::full(sizes, 0.5, at::TensorOptions(at::kFloat)).contiguous(format);
}

// One layout of one convolution.
class Run {
 public:
  Run(const Convolution& of, at::MemoryFormat format)
      : of_(of),
        input_(image(of.input, format)),
        weight_(image(of.weight, format)),
        bias_(of.has_bias ? at::full({of.weight[0]}, 0.5) : at::Tensor()) {
    output_ = forward();
    gradient_ = image(output_.sizes().vec(), format);
  }

  double time_us() {
    const auto start = Clock::now();
    output_ = forward();
    const std::vector<int64_t> bias_sizes = {of_.weight[0]};
    gradients_ =
        at::convolution_backward(gradient_, input_, weight_, of_.has_bias ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt, of_.stride,
                                 of_.padding, of_.dilation, false, {0, 0}, of_.groups, {of_.gives_input_gradient, true, of_.has_bias});
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  bool output_is_last() const { return is_last(output_); }
  bool input_gradient_is_last() const { return is_last(std::get<0>(gradients_)); }
  bool weight_gradient_is_last() const { return is_last(std::get<1>(gradients_)); }

 private:
  at::Tensor forward() const {
    return at::convolution(input_, weight_, bias_.defined() ? std::optional(bias_) : std::nullopt, of_.stride, of_.padding, of_.dilation,
                           false, {0, 0}, of_.groups);
  }

  const Convolution& of_;
  const at::Tensor input_, weight_, bias_;
  at::Tensor output_, gradient_;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients_;
};

// The two take turns, so that a slow moment of the machine meets both.
ConvolutionTimes measure(const Convolution& of) {
  Run plain(of, at::MemoryFormat::Contiguous), last(of, at::MemoryFormat::ChannelsLast);
  ConvolutionTimes times{.plain_us = std::numeric_limits<double>::infinity(), .last_us = std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kRuns; ++i) {
    times.plain_us = std::min(times.plain_us, plain.time_us());
    times.last_us = std::min(times.last_us, last.time_us());
  }
  times.output_is_last = last.output_is_last();
  times.input_gradient_is_last = last.input_gradient_is_last();
  times.weight_gradient_is_last = last.weight_gradient_is_last();
  return times;
}

double measure_copy(const std::vector<int64_t>& sizes) {
  const at::Tensor from = image(sizes, at::MemoryFormat::Contiguous);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const auto start = Clock::now();
    const at::Tensor copy = from.clone(at::MemoryFormat::ChannelsLast);
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return best;
}

// What was measured, by the number of threads too. A program has few kinds of them; one that has new ones all the time begins anew.
template <class Key, class Value>
class Table {
 public:
  template <class Measure>
  Value of(const Key& what, Measure measure) {
    constexpr size_t kMost = 4096;
    const std::pair key(at::get_num_threads(), what);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = values_.find(key); found != values_.end()) return found->second;
    }
    const at::InferenceMode no_history;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Value value = measure(what);
    const std::lock_guard lock(mutex_);
    if (values_.size() >= kMost) values_.clear();
    return values_.emplace(key, value).first->second;
  }

 private:
  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};
  std::map<std::pair<int, Key>, Value> values_;
};

}  // namespace

ConvolutionTimes times_of(const Convolution& convolution) {
  static auto& table = *new Table<Convolution, ConvolutionTimes>;
  return table.of(convolution, measure);
}

double copy_us(const std::vector<int64_t>& sizes) {
  static auto& table = *new Table<std::vector<int64_t>, double>;
  return table.of(sizes, measure_copy);
}

}  // namespace hindcast::codegen
