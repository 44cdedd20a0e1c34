#include "codegen/layouts/convolution_times.h"

#include "codegen/layouts/kept_times.h"
#include "codegen/layouts/one_thread.h"
#include "base/fork.h"
#include "base/fork_gate.h"

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
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace hindcast::codegen {
namespace {

using Clock = std::chrono::steady_clock;

// Runs are repeated while they lower the minimum.
constexpr int kFewestRuns = 4, kMostRuns = 12, kRunsByClock = 3;
constexpr double kLess = 0.98;

bool is_last(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_contiguous();
}

at::Tensor image(const std::vector<int64_t>& sizes, at::MemoryFormat format) {
  return at::full(sizes, 0.5, at::TensorOptions(at::kFloat)).contiguous(format);
}

// Runs one convolution in one layout. A fork waits for the end of a run: a lock of oneDNN's that this thread holds would stay locked in the
// child, and its first convolution would never return.
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

  void run() {
    const base::InsideCompiler no_fork;
    output_ = forward();
    const std::vector<int64_t> bias_sizes = {of_.weight[0]};
    gradients_ =
        at::convolution_backward(gradient_, input_, weight_, of_.has_bias ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt, of_.stride,
                                 of_.padding, of_.dilation, false, {0, 0}, of_.groups, {of_.gives_input_gradient, true, of_.has_bias});
  }

  bool output_is_last() const { return is_last(output_); }
  bool input_gradient_is_last() const { return is_last(std::get<0>(gradients_)); }
  bool weight_gradient_is_last() const { return is_last(std::get<1>(gradients_)); }

 private:
  at::Tensor forward() const {
    const base::InsideCompiler no_fork;
    return at::convolution(input_, weight_, bias_.defined() ? std::optional(bias_) : std::nullopt, of_.stride, of_.padding, of_.dilation,
                           false, {0, 0}, of_.groups);
  }

  const Convolution& of_;
  const at::Tensor input_, weight_, bias_;
  at::Tensor output_, gradient_;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients_;
};

constexpr double kNever = std::numeric_limits<double>::infinity();

// The number of images per thread.
int64_t share_of(int64_t images) {
  const int64_t threads = at::get_num_threads();
  return std::min(images, std::max<int64_t>(2, (images + threads - 1) / threads));
}

template <class Work>
bool makes_less(double& least_cpu_us, Work work) {
  const double start = cpu_us();
  work();
  const double us = cpu_us() - start;
  const bool is_less = us < kLess * least_cpu_us;
  least_cpu_us = std::min(least_cpu_us, us);
  return is_less;
}

/// `run` returns whether it lowered the minimum.
template <class Run>
void repeat_on_one_thread(Run run) {
  on_one_thread([&] {
    int in_vain = 0;
    for (int i = 0; i < kMostRuns && (i < kFewestRuns || in_vain < kFewestRuns - 1); ++i) in_vain = run() ? 0 : in_vain + 1;
  });
}

template <class Work>
void time_by_clock(double& least_us, Work work) {
  const auto start = Clock::now();
  work();
  least_us = std::min(least_us, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
}

// Alternates between the two layouts, so that a temporary slowdown of the machine affects both.
ConvolutionTimes measure(const Convolution& of) {
  Convolution share = of;
  share.input[0] = share_of(of.input[0]);
  constexpr auto kPlain = at::MemoryFormat::Contiguous, kLast = at::MemoryFormat::ChannelsLast;
  Run plain(of, kPlain), last(of, kLast), plain_share(share, kPlain), last_share(share, kLast);
  ConvolutionTimes times{.plain = {kNever, kNever}, .last = {kNever, kNever}};
  repeat_on_one_thread([&] {
    const bool plain_is_less = makes_less(times.plain.cpu_us, [&] { plain_share.run(); });
    return makes_less(times.last.cpu_us, [&] { last_share.run(); }) || plain_is_less;
  });
  for (int i = 0; i < kRunsByClock; ++i) {
    time_by_clock(times.plain.clock_us, [&] { plain.run(); });
    time_by_clock(times.last.clock_us, [&] { last.run(); });
  }
  times.output_is_last = last.output_is_last();
  times.input_gradient_is_last = last.input_gradient_is_last();
  times.weight_gradient_is_last = last.weight_gradient_is_last();
  return times;
}

RunTime measure_copy(const std::vector<int64_t>& sizes) {
  const at::Tensor from = image(sizes, at::MemoryFormat::Contiguous), share = from.narrow(0, 0, share_of(sizes[0]));
  RunTime least{kNever, kNever};
  repeat_on_one_thread([&] { return makes_less(least.cpu_us, [&] { share.clone(at::MemoryFormat::ChannelsLast); }); });
  for (int i = 0; i < kRunsByClock; ++i) {
    time_by_clock(least.clock_us, [&] { from.clone(at::MemoryFormat::ChannelsLast); });
  }
  return least;
}

// The measured times, of this process and others. A program has few different convolutions; if there are too many, the table is cleared.
class Table {
 public:
  template <class Measure>
  std::vector<double> of(std::string_view what, const std::vector<int64_t>& sizes, size_t count, Measured by, Measure measure) {
    constexpr size_t kMost = 4096;
    std::tuple key(settings_of_times(), std::string(what), sizes);
    {
      const std::lock_guard lock(mutex_);
      const auto found = times_.find(key);
      if (found != times_.end() && !found->second.by(by).empty()) return found->second.by(by);
    }
    Times known = kept_or_measured(what, sizes, count, by, measure);
    const std::lock_guard lock(mutex_);
    if (times_.size() >= kMost) times_.clear();
    return times_.insert_or_assign(std::move(key), std::move(known)).first->second.by(by);
  }

 private:
  struct Times {
    std::vector<double> least;  // the minimum over all processes
    std::vector<double> own;    // this process's times; empty if it has not measured

    const std::vector<double>& by(Measured measured) const { return measured == Measured::ByThisProcess ? own : least; }
  };

  // The first processes all measure, later ones at doubling intervals: the minimum counts, and a bad measurement must not decide forever.
  static bool is_time_to_measure(const std::optional<KeptTimes>& kept) {
    constexpr int kFirst = 3;
    return !kept || kept->measurements < kFirst || (kept->processes & (kept->processes + 1)) == 0;
  }

  template <class Measure>
  static Times kept_or_measured(std::string_view what, const std::vector<int64_t>& sizes, size_t count, Measured by, Measure measure) {
    auto kept = kept_times(what, sizes, count);
    if (by == Measured::BySomeProcess && !is_time_to_measure(kept)) {
      ++kept->processes;
      keep_times(what, sizes, *kept);
      return {std::move(kept->times), {}};
    }
    const at::InferenceMode no_history;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::vector<double> own = measure();
    KeptTimes all{own};
    if (kept) {
      all.measurements += kept->measurements;
      all.processes += kept->processes;
      for (size_t i = 0; i < count; ++i) all.times[i] = std::min(all.times[i], kept->times[i]);
    }
    keep_times(what, sizes, all);
    return {std::move(all.times), std::move(own)};
  }

  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};
  std::map<std::tuple<std::vector<int64_t>, std::string, std::vector<int64_t>>, Times> times_;
};

Table& table() {
  static constinit base::MadeOnce<Table> table;
  return table.get();
}

}  // namespace

// Each list is preceded by its length.
std::vector<int64_t> Convolution::numbers() const {
  std::vector<int64_t> numbers = {groups, has_bias, gives_input_gradient};
  for (const auto* list : {&input, &weight, &stride, &padding, &dilation}) {
    numbers.push_back(static_cast<int64_t>(list->size()));
    numbers.insert(numbers.end(), list->begin(), list->end());
  }
  return numbers;
}

ConvolutionTimes times_of(const Convolution& convolution, Measured by) {
  constexpr size_t kNumbers = 7;
  const auto numbers = table().of("convolution", convolution.numbers(), kNumbers, by, [&] {
    const ConvolutionTimes times = measure(convolution);
    std::vector<double> numbers = {times.plain.cpu_us, times.plain.clock_us, times.last.cpu_us, times.last.clock_us};
    for (const bool is_last : {times.output_is_last, times.input_gradient_is_last, times.weight_gradient_is_last})
      numbers.push_back(is_last);
    return numbers;
  });
  return {{numbers[0], numbers[1]}, {numbers[2], numbers[3]}, numbers[4] != 0, numbers[5] != 0, numbers[6] != 0};
}

RunTime copy_time(const std::vector<int64_t>& sizes, Measured by) {
  const auto numbers = table().of("copy", sizes, 2, by, [&] {
    const RunTime time = measure_copy(sizes);
    return std::vector{time.cpu_us, time.clock_us};
  });
  return {numbers[0], numbers[1]};
}

}  // namespace hindcast::codegen
