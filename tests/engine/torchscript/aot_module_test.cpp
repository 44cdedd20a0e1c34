// aot_module() of TorchScript modules, compared with the same modules on LibTorch's own executor.

#include "tests/engine/aot/aot_grads.h"
#include "tests/engine/torchscript/script_modules.h"
#include "tests/support/log_capture.h"

#include <hindcast/jit.h>

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace hindcast::tests {
namespace {

using Inputs = std::vector<c10::IValue>;

std::string text_of(const c10::IValue& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

at::Tensor constant_rows(int64_t count, uint64_t seed = 1) { return rows(count, seed).detach(); }

// Without a backward.
void expect_like_stock(const AotJitModule& compiled, torch::jit::Module& stock, const Inputs& given, const std::string& what) {
  const torch::NoGradGuard no_grad;
  const auto value = compiled.forward(given);
  const auto expected = stock.forward(given);
  EXPECT_EQ(value.type()->repr_str(), expected.type()->repr_str()) << what;
  EXPECT_EQ(text_of(value), text_of(expected)) << what;
}

TEST(AotJitModule, RunsProgramsForwardAndBackward) {
  auto stock = stock_module(kMlp), original = script_module(kMlp);
  const auto compiled = aot_module(original, exact_programs());
  for (int i = 0; i < 5; ++i) {
    const auto x = rows(5, i), y = rows(5, i);
    const auto loss = compiled({x}).toTensor(), expected = stock.forward({y}).toTensor();
    EXPECT_TRUE(torch::equal(loss, expected));
    loss.backward();
    expected.backward();
    EXPECT_TRUE(torch::equal(x.grad(), y.grad()));
    EXPECT_TRUE(torch::equal(original.attr("weight").toTensor().grad(), stock.attr("weight").toTensor().grad()));
  }
  EXPECT_EQ(compiled.stats().hits, 4);
  EXPECT_EQ(compiled.stats().traces, 1);
}

TEST(AotJitModule, ContainersGoInAndOut) {
  const char* const text = R"(
def forward(self, xs: List[Tensor], scale: float, extra: Optional[Tensor], names: Dict[str, Tensor]) -> Tuple[Dict[str, Tensor], List[Tensor], int]:
    total = xs[0] * scale
    for x in xs[1:]:
        total = total + torch.mm(x, self.weight)
    if extra is not None:
        total = total * extra
    out: List[Tensor] = []
    for name in names:
        out.append(names[name] + total)
    return {"total": total, "first": out[0]}, out, len(xs)
)";
  auto stock = script_module(text), original = script_module(text);
  const auto compiled = aot_module(original, exact_programs());
  c10::Dict<std::string, at::Tensor> names;
  names.insert("a", rows(3, 8));
  names.insert("b", rows(3, 9));
  for (const size_t count : {2, 2, 3, 3, 2}) {
    c10::List<at::Tensor> xs;
    for (size_t i = 0; i < count; ++i) xs.push_back(rows(3, i));
    for (const double scale : {1.0, 2.0}) {
      expect_like_stock(compiled, stock, {xs, scale, c10::IValue(), names}, c10::str(count, " tensors"));
      expect_like_stock(compiled, stock, {xs, scale, rows(3, 7), names}, c10::str(count, " tensors and one more"));
    }
    EXPECT_EQ(xs.size(), count);
  }
  EXPECT_EQ(compiled.stats().eager, 0);
  EXPECT_EQ(compiled.stats().hits, 12);
}

TEST(AotJitModule, TuplesOfTensorsComeOut) {
  for (const char* const text : {R"(
def forward(self, x: Tensor) -> Tuple[Tensor, int]:
    return torch.mm(x, self.weight).tanh(), 3
)",
                                 R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tuple[Tensor, float], str]:
    y = torch.mm(x, self.weight)
    return y.tanh(), (y.exp(), 2.5), "text"
)",
                                 R"(
def forward(self, x: Tensor) -> List[Tuple[Tensor, int]]:
    y = torch.mm(x, self.weight)
    return [(y.tanh(), 1), (y.exp(), 2)]
)"}) {
    auto stock = script_module(text), original = script_module(text);
    const auto compiled = aot_module(original, exact_programs());
    for (int i = 0; i < 4; ++i) expect_like_stock(compiled, stock, {rows(3, i)}, text);
    EXPECT_EQ(compiled.stats().hits, 3) << text;
  }
}

TEST(AotJitModule, NumbersOfObjectsInContainersAreLookedAt) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const auto box = c10::ClassType::create("__torch__.Box", unit);
  box->addAttribute("factor", c10::FloatType::get());
  unit->register_type(box);
  const auto make = [&] {
    auto object = c10::ivalue::Object::create(c10::StrongTypePtr(unit, box), 1);
    object->setSlot(0, 2.0);
    c10::impl::GenericList list(box);
    list.push_back(object);
    torch::jit::Module module("__torch__.Net", unit, /*shouldMangle=*/true);
    module.register_attribute("boxes", c10::ListType::create(box), list);
    module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.tanh(x) * self.boxes[0].factor
)");
    return std::pair(module, object);
  };
  auto [stock, of_stock] = make();
  auto [original, of_original] = make();
  const auto compiled = aot_module(original, exact_programs());
  for (const double factor : {2.0, 2.0, 2.0, 5.0, 5.0, 2.0}) {
    of_stock->setSlot(0, factor);
    of_original->setSlot(0, factor);
    expect_like_stock(compiled, stock, {rows(2)}, c10::str("factor ", factor));
  }
  EXPECT_EQ(compiled.stats().hits, 4);
}

TEST(AotJitModule, EffectsOfAContextAreSeen) {
  const auto make = [] {
    torch::jit::Module context("Context");
    context.register_attribute("times", c10::IntType::get(), 0);
    context.define(R"(
def __enter__(self) -> None:
    self.times = self.times + 1

def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
    pass
)");
    torch::jit::Module module("Net");
    module.register_module("context", context);
    module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    with self.context:
        y = torch.tanh(x)
    return y * self.context.times
)");
    return module;
  };
  auto stock = make(), original = make();
  const auto compiled = aot_module(original, exact_programs());
  for (int i = 0; i < 4; ++i) expect_like_stock(compiled, stock, {rows(2)}, c10::str("call ", i));
  EXPECT_EQ(compiled.stats().hits, 0);
}

TEST(AotJitModule, AttributesAreLookedAt) {
  const char* const text = R"(
def forward(self, x: Tensor) -> Tensor:
    if self.training:
        x = x * 2.0
    return torch.tanh(x) * self.factor + self.shift
)";
  const auto make = [&] {
    torch::jit::Module module("Net");
    module.register_attribute("training", c10::BoolType::get(), true);
    module.register_attribute("factor", c10::FloatType::get(), 3.0);
    module.register_attribute("shift", c10::TensorType::get(), torch::ones({8}));
    module.define(text);
    return module;
  };
  auto stock = make(), original = make();
  const auto compiled = aot_module(original, exact_programs());
  const auto change = [&](const char* name, const c10::IValue& value) {
    stock.setattr(name, value);
    original.setattr(name, value);
  };
  for (int i = 0; i < 2; ++i) {
    expect_like_stock(compiled, stock, {rows(2)}, "as made");
    change("factor", 5.0);
    expect_like_stock(compiled, stock, {rows(2)}, "another number");
    change("shift", torch::full({8}, 7.0));
    expect_like_stock(compiled, stock, {rows(2)}, "another tensor");
    stock.eval();
    original.eval();
    expect_like_stock(compiled, stock, {rows(2)}, "evaluation");
    stock.train();
    original.train();
  }
  stock.attr("shift").toTensor().add_(1);
  expect_like_stock(compiled, stock, {rows(2)}, "written to");
}

TEST(AotJitModule, WhatHasEffectsRunsEagerly) {
  struct Case {
    const char* text;
    const char* why;
  };
  const std::vector<Case> cases = {
      {"def forward(self, x: Tensor) -> Tensor:\n    self.calls += 1\n    return x.sin() * self.calls\n",
       "assigns to the attribute 'calls'"},
      {"def forward(self, x: Tensor) -> Tensor:\n    self.seen.append(x)\n    return x.sin()\n", "changes a list"},
      {"def forward(self, x: Tensor) -> Tensor:\n    print(x.size(0))\n    return x.sin()\n", "prim::Print"},
      {"def forward(self, x: Tensor) -> Any:\n    return x.sin()\n", "returns a value of type Any"},
  };
  for (const Case& each : cases) {
    LogCapture logs("aot");
    const auto make = [&] {
      torch::jit::Module module("Net");
      module.register_attribute("calls", c10::IntType::get(), 0);
      module.register_attribute("seen", c10::ListType::ofTensors(), c10::List<at::Tensor>());
      module.define(each.text);
      return module;
    };
    auto stock = make(), original = make();
    const auto compiled = aot_module(original, exact_programs());
    testing::internal::CaptureStdout();
    for (int i = 0; i < 4; ++i) expect_like_stock(compiled, stock, {rows(2, i)}, each.why);
    testing::internal::GetCapturedStdout();
    EXPECT_EQ(compiled.stats().eager, 4) << each.why;
    EXPECT_EQ(text_of(original.attr("calls")), text_of(stock.attr("calls")));
    EXPECT_EQ(original.attr("seen").toTensorVector().size(), stock.attr("seen").toTensorVector().size());
    EXPECT_GE(logs.count(each.why), 1) << each.why;

    AotOptions options;
    options.fallback = false;
    EXPECT_THROW(aot_module(make(), options)({rows(2)}), std::runtime_error) << each.why;
  }
}

TEST(AotJitModule, AListOfTheCallersThatIsChangedIsTheCallers) {
  const char* const text = "def forward(self, xs: List[Tensor]) -> Tensor:\n    xs.append(xs[0].sin())\n    return xs[0].cos()\n";
  const auto compiled = aot_module(script_module(text), exact_programs());
  for (size_t i = 0; i < 3; ++i) {
    c10::List<at::Tensor> xs({constant_rows(2)});
    compiled({xs});
    EXPECT_EQ(xs.size(), 2);
  }
}

TEST(AotJitModule, ObjectsAmongArgumentsRunEagerly) {
  torch::jit::Module inner = script_module(kMlp);
  auto module = script_module("def forward(self, x: Tensor, y: Any) -> Tensor:\n    return x.sin()\n");
  const auto compiled = aot_module(module, exact_programs());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(compiled({rows(2), inner._ivalue()}).toTensor(), rows(2).sin()));
  EXPECT_EQ(compiled.stats().eager, 3);
  EXPECT_EQ(compiled.stats().calls, 3);
}

TEST(AotJitModule, SizesOfChangingNeighbourLists) {
  const char* const text = R"(
def forward(self, positions: Tensor, pairs: Tensor) -> Tensor:
    d = positions.index_select(0, pairs[0]) - positions.index_select(0, pairs[1])
    r = torch.sqrt(torch.sum(d * d, 1) + 0.1)
    per_atom = torch.zeros_like(positions[:, 0]).index_add(0, pairs[0], torch.exp(-r) / r)
    return torch.sum(torch.tanh(per_atom))
)";
  auto stock = stock_module(text), original = script_module(text);
  const auto compiled = aot_module(original, exact_programs());
  for (const int64_t count : {9, 12, 7, 30, 1, 0, 15, 64, 9, 33}) {
    torch::manual_seed(count + 1);
    const auto pairs = torch::randint(6, {2, count});
    const auto x = constant_rows(6).requires_grad_(), y = constant_rows(6).requires_grad_();
    const auto energy = compiled({x, pairs}).toTensor(), expected = stock.forward({y, pairs}).toTensor();
    EXPECT_TRUE(torch::equal(energy, expected)) << count;
    energy.backward();
    expected.backward();
    EXPECT_TRUE(torch::equal(x.grad(), y.grad())) << count;
  }
  EXPECT_EQ(compiled.stats().eager, 0);
  EXPECT_GE(compiled.stats().hits, 6);
}

TEST(AotJitModule, BadOptionsAreNamed) {
  AotOptions options;
  options.static_argnums = {0};
  try {
    aot_module(script_module(kMlp), options);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("static_argnums"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hindcast::tests
