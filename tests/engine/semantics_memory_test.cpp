// Memory: saved tensors are freed as the backward passes them, nothing of a step outlives it, and a hit needs no more memory than the stock
// engine.

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>

#include "capture/recorder/libtorch_compat.h"
#include "tests/support/programs.h"

namespace hindcast::tests {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

WeakTensor weak(const at::Tensor& tensor) { return WeakTensor(tensor.getIntrusivePtr()); }

/// "110": which of these tensors are alive.
std::string alive(const std::vector<WeakTensor>& tensors) {
  std::string text;
  for (const auto& tensor : tensors) {
    text += tensor.expired() ? '0' : '1';
  }
  return text;
}

TEST(SavedTensors, AreReleasedAsTheBackwardPassesThem) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({3});
    std::vector<WeakTensor> saved;
    auto y = x * 1;
    for (int i = 0; i < 5; ++i) {
      saved.push_back(weak(y));
      y.register_hook([&log, &saved, i](at::Tensor) { log.note("at " + std::to_string(i) + " alive " + alive(saved)); });
      y = y.sin();  // saves its input, which nobody else holds
    }
    const auto loss = y.sum();
    y.reset();
    loss.backward();
    log.note("after " + alive(saved));
  });
}

TEST(SavedTensors, AreReleasedWithoutAnyHook) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3});
    std::vector<WeakTensor> saved;
    auto y = x * 1;
    for (int i = 0; i < 5; ++i) {
      saved.push_back(weak(y));
      y = y.sin();
    }
    const auto loss = y.sum();
    y.reset();
    const bool retain = step % 2 == 1;
    loss.backward({}, retain);
    log.note("after " + alive(saved));
    if (retain) loss.backward();
    log.note("after " + alive(saved));
  });
}

TEST(SavedTensors, StayWithRetainGraph) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    auto y = x * 1;
    const std::vector<WeakTensor> saved{weak(y)};
    const auto loss = y.sin().sum();
    y.reset();
    loss.backward({}, /*retain_graph=*/true);
    log.note("retained " + alive(saved));
    loss.backward();
    log.note("released " + alive(saved));
  });
}

TEST(SavedTensors, BehindTheFailingHookStay) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({3});
    std::vector<WeakTensor> saved;
    auto y = x * 1;
    for (int i = 0; i < 4; ++i) {
      saved.push_back(weak(y));
      y.register_hook([step, i](at::Tensor) {
        if (step > 0 && i == 2) throw std::runtime_error("hook 2");
      });
      y = y.sin();
    }
    const auto loss = y.sum();
    y.reset();
    log.attempt("backward", [&] { loss.backward(); });
    log.note("after " + alive(saved));
  });
}

TEST(Gradients, OfIntermediatesAreReleasedAsTheyAreUsed) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({3});
    std::vector<WeakTensor> gradients;
    auto y = x;
    for (int i = 0; i < 5; ++i) {
      y = y.sin();
      y.register_hook([&](at::Tensor grad) {
        log.note("alive " + alive(gradients));
        gradients.push_back(weak(grad));
      });
    }
    y.sum().backward();
    log.note("after " + alive(gradients));
  });
}

TEST(Gradients, RootGradientIsReleased) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({3});
    auto gradient = at::ones({3});
    const std::vector<WeakTensor> root{weak(gradient)};
    x.sin().backward(gradient);
    gradient.reset();
    log.note("after " + alive(root));
  });
}

/// A tensor whose memory is counted in `live`.
at::Tensor counted(std::atomic<int>& live, at::IntArrayRef sizes) {
  const auto numel = c10::multiply_integers(sizes);
  ++live;
  return at::from_blob(new float[numel](), sizes, [&live](void* data) {
    delete[] static_cast<float*>(data);
    --live;
  });
}

TEST(Leaks, NoTensorOfAStepOutlivesItOverTwoHundredHits) {
  expect_same(
      [](Log& log) {
        std::atomic<int> live{0};
        const auto w = leaf({4, 4});
        for (int step = 0; step < 200; ++step) {
          {
            // An input, a saved intermediate, a root gradient and a leaf of this step.
            const auto x = counted(live, {3, 4});
            const auto scale = counted(live, {3, 4}).set_requires_grad(true);
            const auto y = x.mm(w) * scale;
            y.backward(counted(live, {3, 4}));
          }
          if (live != 0) log.note("step " + std::to_string(step) + ": " + std::to_string(live) + " are alive");
        }
        log.show("w.grad", w.grad());
      },
      Takeover::Hits);
}

TEST(Leaks, NothingIsKeptOfABackwardThatThrew) {
  expect_same([](Log& log) {
    std::atomic<int> live{0};
    const auto w = leaf({4, 4});
    for (int step = 0; step < 20; ++step) {
      {
        const auto y = counted(live, {3, 4}).mm(w) * counted(live, {3, 4});
        y.register_hook([](at::Tensor) { throw std::runtime_error("hook"); });
        log.attempt("backward", [&] { y.backward(counted(live, {3, 4})); });
      }
      log.note(std::to_string(live) + " are alive");
    }
  });
}

TEST(Leaks, HooksAreDestroyedWithTheirTensors) {
  expect_same(
      [](Log& log) {
        const auto token = std::make_shared<int>(0);
        for (int step = 0; step < 5; ++step) {
          const auto x = leaf({3});
          const auto y = x.sin();
          y.register_hook([token](at::Tensor) {});
          x.register_hook([token](at::Tensor) {});
          hindcast::on_grad_ready(x, [token](const at::Tensor&) {});
          y.sum().backward();
          log.note(std::to_string(token.use_count()) + " holders in the step");
        }
        log.note(std::to_string(token.use_count()) + " holders after all");
      },
      Takeover::Hits);
}

TEST(Leaks, NodesAreDestroyedWithTheirGraph) {
  expect_same(
      [](Log& log) {
        for (int step = 0; step < 5; ++step) {
          const auto x = leaf({3});
          auto y = x.sin();
          const capture::WeakNodePtr node(y.grad_fn()), leaf_node(torch::autograd::impl::grad_accumulator(x));
          auto loss = y.exp().sum();
          y.reset();
          loss.backward();
          loss.reset();
          log.note(node.expired() ? "node gone" : "node alive");
          log.note(leaf_node.expired() ? "leaf's node gone" : "leaf's node alive");
        }
      },
      Takeover::Hits);
}

/// While it lives, counts the bytes that LibTorch's CPU allocator has handed out, on all threads.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : former_(c10::GetCPUAllocator()) { install(this); }
  ~CountingAllocator() override { install(former_); }

  c10::DataPtr allocate(size_t size) override {
    auto* block = new Block{former_->allocate(size), size};
    const auto now = live_ += size;
    auto peak = peak_.load();
    while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
    }
    return {block->memory.get(), block, &free_block, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }

  static int64_t live() { return live_; }
  static int64_t take_peak() { return peak_.exchange(live_.load()); }

 private:
  struct Block {
    c10::DataPtr memory;
    size_t size;
  };
  static void install(c10::Allocator* allocator) { c10::SetCPUAllocator(allocator, /*priority=*/255); }
  static void free_block(void* context) {
    auto* block = static_cast<Block*>(context);
    live_ -= block->size;
    delete block;
  }

  // Static: blocks may outlive the allocator.
  static inline std::atomic<int64_t> live_{0}, peak_{0};
  c10::Allocator* former_;
};

void train_step(const at::Tensor& w, int step) {
  const auto y = at::randn({3 + step % 2, 8}).mm(w).tanh();
  y.register_hook([](at::Tensor grad) { return grad * 2; });
  y.exp().sum().backward();
}

TEST(Leaks, BytesOfTensorsDoNotGrowOverTwoHundredHits) {
  CountingAllocator allocator;
  const auto guard = hindcast::enable();
  const auto w = leaf({8, 8});
  for (int step = 0; step < 20; ++step) {
    train_step(w, step);
  }
  const auto before = CountingAllocator::live();
  for (int step = 0; step < 200; ++step) {
    train_step(w, step);
  }
  EXPECT_EQ(CountingAllocator::live(), before);
}

int64_t peak_of_a_backward() {
  constexpr int64_t kElements = 1 << 16;  // 256 KiB
  const auto x = at::zeros({kElements}).set_requires_grad(true);
  auto y = x;
  for (int i = 0; i < 30; ++i) {
    y = y.sin();
  }
  const auto loss = y.sum();
  y.reset();
  CountingAllocator::take_peak();
  loss.backward();
  return CountingAllocator::take_peak();
}

TEST(PeakMemory, IsThatOfTheStockEngine) {
  CountingAllocator allocator;
  const auto stock = peak_of_a_backward();
  const auto guard = hindcast::enable();
  hindcast::reset();
  const auto miss = peak_of_a_backward(), hit = peak_of_a_backward();
  const auto allowed = stock + stock / 100;
  EXPECT_LE(miss, allowed);
  EXPECT_LE(hit, allowed);
  EXPECT_EQ(hindcast::stats().hits, 1U);
}

}  // namespace
}  // namespace hindcast::tests
