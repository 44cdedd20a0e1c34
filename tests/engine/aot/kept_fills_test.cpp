// Constant tensors that only kernels read are filled once. Results must equal those of tensors filled in each run.

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <hindcast/aot.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <atomic>
#include <string_view>
#include <thread>
#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;

AotOptions in_foreground() {
  AotOptions options;
  options.async = false;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  return options;
}

/// Calls of an operator on this thread while it is alive.
class CallsOnThread {
 public:
  explicit CallsOnThread(std::string_view name) {
    name_ = name;
    count_ = 0;
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
          if (call.name() == name_) ++count_;
          return nullptr;
        }));
  }
  ~CallsOnThread() { at::removeCallback(handle_); }
  CallsOnThread(const CallsOnThread&) = delete;
  CallsOnThread& operator=(const CallsOnThread&) = delete;
  static int count() { return count_; }

 private:
  static inline thread_local std::string_view name_;
  static inline thread_local int count_ = 0;
  at::CallbackHandle handle_;
};

Tensors with_ones(const at::Tensor& x) { return {x * at::ones_like(x) + at::full({}, 0.5)}; }

TEST(KeptFills, AreMadeOnce) {
  const auto compiled = aot_function(with_ones, in_foreground());
  const at::Tensor x = at::randn({3, 5});
  for (int call = 0; call < 5; ++call) compiled(x);
  const at::Tensor expected = with_ones(x)[0];
  const CallsOnThread ones("aten::ones_like");
  EXPECT_TRUE(at::equal(compiled(x)[0], expected));
  EXPECT_EQ(CallsOnThread::count(), 0);
}

TEST(KeptFills, OfOtherSizesAreMadeAnew) {
  const auto compiled = aot_function(with_ones, in_foreground());
  for (const int64_t rows : {3, 4, 7, 3, 5, 900, 1, 0, 3, 6, 4}) {
    const at::Tensor x = at::randn({rows, 5});
    EXPECT_TRUE(at::equal(compiled(x)[0], with_ones(x)[0])) << rows;
  }
}

// The tensor's own size stays the same.
TEST(KeptFills, OfANumberThatIsASize) {
  const auto function = [](const at::Tensor& x) {
    const at::Tensor part = x.slice(0, 0, 4);
    const at::Tensor count = at::full_like(part, at::Scalar(x.sym_size(0)));
    return Tensors{part.exp() + count, part * at::scalar_tensor(at::Scalar(x.sym_size(0)))};
  };
  const auto compiled = aot_function(function, in_foreground());
  for (int call = 0; call < 40; ++call) {
    const at::Tensor x = at::randn({5 + call % 7});
    const Tensors ours = compiled(x), stock = function(x);
    for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i])) << call << ' ' << i;
  }
}

// A tensor that is returned, written to or viewed belongs to the caller.
TEST(KeptFills, ThatOthersGetAreTheirs) {
  const auto function = [](const at::Tensor& x) {
    const at::Tensor ones = at::ones_like(x), zeros = at::zeros_like(x), half = at::full_like(x, 0.5), sums = x.new_zeros({4});
    sums.scatter_add_(0, at::arange(3), x);
    half.add_(x);
    return Tensors{ones, (zeros + x).exp(), half * x, sums, at::zeros_like(x).view({3, 1})};
  };
  const auto compiled = aot_function(function, in_foreground());
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = at::randn({3});
    const Tensors ours = compiled(x), stock = function(x);
    for (size_t i = 0; i < stock.size(); ++i) {
      EXPECT_TRUE(at::allclose(ours[i], stock[i])) << call << ' ' << i;
      ours[i].add_(1);
    }
  }
}

TEST(KeptFills, OfInferenceModeAreNotKeptForTraining) {
  const auto compiled = aot_function(with_ones, in_foreground());
  const at::Tensor x = at::randn({3, 5});
  for (int call = 0; call < 6; ++call) {
    const c10::InferenceMode inference(call % 2 == 0);
    EXPECT_TRUE(at::equal(compiled(x)[0], with_ones(x)[0]));
  }
  const at::Tensor leaf = at::randn({3, 5}).requires_grad_();
  compiled(leaf)[0].sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), at::ones({3, 5})));
}

TEST(KeptFills, OfSeveralThreads) {
  const auto compiled = aot_function(with_ones, in_foreground());
  const at::Tensor x = at::randn({3, 5}), expected = with_ones(x)[0];
  for (int call = 0; call < 2; ++call) compiled(x);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 50; ++call) wrong += at::equal(compiled(x)[0], expected) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(KeptFills, OfALossAndItsGradient) {
  const auto function = [](const at::Tensor& x) { return at::mse_loss(x.tanh(), at::zeros_like(x)); };
  const auto compiled = aot_function(function, in_foreground());
  for (int call = 0; call < 4; ++call) {
    const at::Tensor ours = at::linspace(-1, 1, 7).requires_grad_(), stock = ours.detach().clone().requires_grad_();
    compiled(ours).backward();
    function(stock).backward();
    EXPECT_TRUE(at::allclose(ours.grad(), stock.grad()));
  }
}

}  // namespace
}  // namespace hindcast::tests
