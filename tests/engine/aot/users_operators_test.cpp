// A user's own operators in compiled functions: their kernels see the same as in the function itself.

#include <hindcast/aot.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace hindcast::tests::users_operators_test {
namespace {

using Tensors = std::vector<at::Tensor>;

AotOptions with_kernels() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.async = false;
  return options;
}

/// Grad mode, and `requires_grad` of the tensors, in each call of a kernel.
std::vector<std::vector<bool>> seen;

template <class... Args>
at::Tensor call(const char* name, const Args&... args) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<at::Tensor(const Args&...)>().call(args...);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  seen.push_back({at::GradMode::is_enabled(), a.requires_grad(), b.requires_grad()});
  return a * b;
}

struct Product : torch::autograd::Function<Product> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& a, const at::Tensor& b) {
    context->save_for_backward({a, b});
    const at::AutoDispatchBelowADInplaceOrView below;
    return call("hindcast_users_operators_test::product", a, b);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {call("hindcast_users_operators_test::product", gradients[0], saved[1]),
            call("hindcast_users_operators_test::product", gradients[0], saved[0])};
  }
};

at::Tensor product_with_formula(const at::Tensor& a, const at::Tensor& b) {
  if (at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad())) return Product::apply(a, b);
  const at::AutoDispatchBelowADInplaceOrView below;
  return call("hindcast_users_operators_test::product", a, b);
}

/// Has no formula: autograd differentiates what its kernel calls.
at::Tensor square(const at::Tensor& x) { return x * x; }

at::Tensor compiled_sine(const at::Tensor& x) {
  static const auto f = aot_function([](const at::Tensor& in, const at::Tensor& like) { return in.sin() + like.sum(); }, with_kernels());
  return f(x, at::cat({x, x}));
}

struct Sine : torch::autograd::Function<Sine> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    const at::AutoDispatchBelowADInplaceOrView below;
    return call("hindcast_users_operators_test::sine", x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    return {gradients[0] * context->get_saved_variables()[0].cos()};
  }
};
at::Tensor sine_with_formula(const at::Tensor& x) { return Sine::apply(x); }

TORCH_LIBRARY(hindcast_users_operators_test, library) {
  library.def("product(Tensor a, Tensor b) -> Tensor");
  library.impl("product", torch::dispatch(c10::DispatchKey::CPU, &product));
  library.impl("product", torch::dispatch(c10::DispatchKey::Autograd, &product_with_formula));
  library.def("square(Tensor x) -> Tensor");
  library.impl("square", torch::dispatch(c10::DispatchKey::CPU, &square));
  library.def("sine(Tensor x) -> Tensor");
  library.impl("sine", torch::dispatch(c10::DispatchKey::CPU, &compiled_sine));
  library.impl("sine", torch::dispatch(c10::DispatchKey::Autograd, &sine_with_formula));
}

at::Tensor leaf(float value) { return torch::full({3}, value).requires_grad_(); }

TEST(UsersOperators, SeeGradModeAndRequiresGradAsInTheFunction) {
  const auto function = [](const at::Tensor& x, const at::Tensor& w) {
    const char* const name = "hindcast_users_operators_test::product";
    at::Tensor y = call(name, x, w) + call(name, x * w, w) + call(name, w, w * 2) + call(name, x, x * 1);
    at::Tensor unseen;
    {
      const at::NoGradGuard no_grad;
      unseen = call(name, x, x * 2);
    }
    return y + unseen;
  };
  const auto run = [](const auto& f) {
    seen.clear();
    const auto x = leaf(2);
    f(x, torch::full({3}, 3.F)).sum().backward();
    return std::pair(seen, x.grad());
  };
  const auto stock = run(function);
  const auto f = aot_function(function, with_kernels());
  for (int i = 0; i < 4; ++i) {
    const auto ours = run(f);
    EXPECT_TRUE(ours.second.equal(stock.second)) << i;
    auto expected = stock.first, given = ours.first;  // a backward may call its operators in another order
    std::sort(expected.begin() + 5, expected.end());
    std::sort(given.begin() + 5, given.end());
    EXPECT_EQ(given, expected) << i;
  }
  EXPECT_EQ(f.stats().hits, 3U);
}

TEST(UsersOperators, WithoutAFormulaTheirKernelsHaveAHistory) {
  const auto function = [](const at::Tensor& x) { return call("hindcast_users_operators_test::square", x * 2) + x; };
  const auto f = aot_function(function, with_kernels());
  for (int i = 0; i < 3; ++i) {
    const auto ours = leaf(2), stock = leaf(2);
    f(ours).sum().backward();
    function(stock).sum().backward();
    EXPECT_TRUE(ours.grad().equal(stock.grad())) << i;
  }
  const at::NoGradGuard no_grad;  // no history is needed
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(f(leaf(2)).equal(function(leaf(2))));
  EXPECT_EQ(f.stats().hits, 2U);
}

TEST(UsersOperators, MayCallACompiledFunction) {
  const auto function = [](const at::Tensor& x) { return call("hindcast_users_operators_test::sine", x * 2) * x; };
  const auto f = aot_function(function, with_kernels());
  for (int i = 0; i < 4; ++i) {
    const auto ours = leaf(2), stock = leaf(2);
    const at::Tensor y = f(ours);
    y.sum().backward();
    const at::Tensor expected = function(stock);
    expected.sum().backward();
    EXPECT_TRUE(at::allclose(y, expected)) << i;
    EXPECT_TRUE(at::allclose(ours.grad(), stock.grad())) << i;
  }
  EXPECT_EQ(f.stats().hits, 3U);
}

// A program would run the operator, find another number, and hand the call to the function, which runs the operator again.
TEST(UsersOperators, BeforeAValueThatIsReadRunOnce) {
  const auto of = [](const at::Tensor& x) { return call("hindcast_users_operators_test::product", x, x); };
  const auto reads_a_number = [&](const at::Tensor& x) { return of(x) * x.sum().item<double>(); };
  const auto has_a_size = [&](const at::Tensor& x) {
    const auto y = of(x);
    return y.masked_select(x > 0).sum() + y.sum();
  };
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> functions = {reads_a_number, has_a_size};
  for (const auto& function : functions) {
    const auto f = aot_function(function, with_kernels());
    const at::NoGradGuard no_grad;
    for (const int64_t positive : {3, 3, 2, 3, 0, 1, 2}) {
      auto x = torch::full({5}, -1.F);
      x.slice(0, 0, positive).fill_(static_cast<double>(positive));
      seen.clear();
      EXPECT_TRUE(f(x).equal(function(x)));
      EXPECT_EQ(seen.size(), 2U) << positive;  // both calls
    }
    EXPECT_EQ(f.stats().hits, 0U);
  }
}

}  // namespace
}  // namespace hindcast::tests::users_operators_test
