// A convolution, forward and backward, in LibTorch's layouts on the CPU: `plain`, `last` (channels-last) and `blocked`, oneDNN's own, in
// tensors that only oneDNN can read. ratio: plain over channels-last, which compiled functions choose if it is faster; blocked_ratio: plain
// over blocked, if the tensors around the convolution also had that layout.

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mkldnn_convolution.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <tuple>

#include "bench/harness.h"
#include "bench/suites.h"

namespace hindcast::bench {
namespace {

struct Shape {
  const char* name;
  int64_t images, channels, size, results;
};

class Convolution {
 public:
  enum class Layout { Plain, Last, Blocked };

  Convolution(const Shape& shape, Layout layout) : is_blocked_(layout == Layout::Blocked) {
    const auto format = layout == Layout::Last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    weight_ = at::randn({shape.results, shape.channels, 3, 3}).contiguous(format);
    bias_ = at::randn({shape.results});
    image_ = at::randn({shape.images, shape.channels, shape.size, shape.size}).contiguous(format);
    // oneDNN chooses the blocks: those of the results of two convolutions.
    if (is_blocked_)
      image_ = at::mkldnn_convolution(image_.to_mkldnn(), at::ones({shape.channels, shape.channels, 1, 1}), {}, zeros_, ones_, ones_, 1);
    gradient_ = is_blocked_ ? forward() : at::randn_like(forward());
  }

  double time_us() const {
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor result = forward();
    const auto gradients = at::convolution_backward(gradient_, image_, weight_, at::IntArrayRef({bias_.size(0)}), ones_, ones_, ones_,
                                                    false, zeros_, 1, {true, true, true});
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  at::Tensor forward() const {
    return is_blocked_ ? at::mkldnn_convolution(image_, weight_, bias_, ones_, ones_, ones_, 1)
                       : at::convolution(image_, weight_, bias_, ones_, ones_, ones_, false, zeros_, 1);
  }

  const bool is_blocked_;
  const std::vector<int64_t> ones_ = {1, 1}, zeros_ = {0, 0};
  at::Tensor weight_, bias_, image_, gradient_;
};

void measure(benchmark::State& state, const Shape& shape) {
  const c10::InferenceMode no_history;
  using Layout = Convolution::Layout;
  const Convolution plain(shape, Layout::Plain), last(shape, Layout::Last), blocked(shape, Layout::Blocked);
  std::vector<double> us_plain, us_last, us_blocked;
  for (auto _ : state) {
    us_plain.push_back(plain.time_us());
    us_last.push_back(last.time_us());
    us_blocked.push_back(blocked.time_us());
    state.SetIterationTime(us_last.back() * 1e-6);
  }
  const Summary ratio = paired_quotients(us_plain, us_last);
  state.counters["plain_us"] = summarize(us_plain).median;
  state.counters["last_us"] = summarize(us_last).median;
  state.counters["blocked_us"] = summarize(us_blocked).median;
  state.counters["ratio"] = ratio.median;
  state.counters["spread"] = ratio.spread();
  state.counters["blocked_ratio"] = paired_quotients(us_plain, us_blocked).median;
}

}  // namespace

void register_layouts(const Settings& settings) {
  for (const Shape& shape : {Shape{"32x32/b16", 16, 32, 32, 32}, Shape{"16x16/b16", 16, 64, 16, 64}, Shape{"8x8/b64", 64, 32, 8, 32},
                             Shape{"8x8/b8", 8, 128, 8, 128}}) {
    register_row(settings, std::string("layout/convolution/") + shape.name, settings.pairs(kPairs),
                 [shape](benchmark::State& state) { measure(state, shape); });
  }
}

}  // namespace hindcast::bench
