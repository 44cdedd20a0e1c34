#include "codegen/layouts/convolution_times.h"

#include "codegen/layouts/kept_times.h"
#include "base/fork.h"

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
#include <string>
#include <string_view>
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

// What was measured, here or by another process. A program has few kinds of them; one that has new ones all the time begins anew.
class Table {
 public:
  template <class Measure>
  std::vector<double> of(std::string_view what, const std::vector<int64_t>& sizes, size_t count, Measure measure) {
    constexpr size_t kMost = 4096;
    std::tuple key(settings_of_times(), std::string(what), sizes);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = times_.find(key); found != times_.end()) return found->second;
    }
    std::vector<double> times = kept_or_measured(what, sizes, count, measure);
    const std::lock_guard lock(mutex_);
    if (times_.size() >= kMost) times_.clear();
    return times_.emplace(std::move(key), std::move(times)).first->second;
  }

 private:
  // The first processes all measure, and the least counts: one that a busy machine held up must not decide for good.
  template <class Measure>
  static std::vector<double> kept_or_measured(std::string_view what, const std::vector<int64_t>& sizes, size_t count, Measure measure) {
    constexpr int kEnough = 3;
    auto kept = kept_times(what, sizes, count);
    if (kept && kept->measurements >= kEnough) return std::move(kept->times);
    const at::InferenceMode no_history;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    KeptTimes all{measure()};
    if (kept) {
      all.measurements += kept->measurements;
      for (size_t i = 0; i < count; ++i) all.times[i] = std::min(all.times[i], kept->times[i]);
    }
    keep_times(what, sizes, all);
    return std::move(all.times);
  }

  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};
  std::map<std::tuple<std::vector<int64_t>, std::string, std::vector<int64_t>>, std::vector<double>> times_;
};

Table& table() {
  static auto* table = new Table;
  return *table;
}

}  // namespace

// Lists after their lengths.
std::vector<int64_t> Convolution::numbers() const {
  std::vector<int64_t> numbers = {groups, has_bias, gives_input_gradient};
  for (const auto* list : {&input, &weight, &stride, &padding, &dilation}) {
    numbers.push_back(static_cast<int64_t>(list->size()));
    numbers.insert(numbers.end(), list->begin(), list->end());
  }
  return numbers;
}

ConvolutionTimes times_of(const Convolution& convolution) {
  constexpr size_t kNumbers = 5;
  const auto numbers = table().of("convolution", convolution.numbers(), kNumbers, [&] {
    const ConvolutionTimes times = measure(convolution);
    std::vector<double> numbers = {times.plain_us, times.last_us};
    for (const bool is_last : {times.output_is_last, times.input_gradient_is_last, times.weight_gradient_is_last})
      numbers.push_back(is_last);
    return numbers;
  });
  return {numbers[0], numbers[1], numbers[2] != 0, numbers[3] != 0, numbers[4] != 0};
}

double copy_us(const std::vector<int64_t>& sizes) {
  return table().of("copy", sizes, 1, [&] { return std::vector{measure_copy(sizes)}; })[0];
}

}  // namespace hindcast::codegen
