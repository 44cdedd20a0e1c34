// Launches and bytes of backwards, without a card: the emulator sees each access. This file writes the table in docs/gpu.md. To update it:
//
//   HINDCAST_WRITE_TABLES=1 build/release/tests/test_cuda --gtest_filter='Traffic.*'

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/cuda/cost_model.h"
#include "hindcast/graph.h"
#include "hindcast/hindcast.h"
#include "tests/codegen/fuse/captured_groups.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/cuda_emulator/runtime/launch.h"
#include "tests/support/kept_graphs.h"

namespace hindcast::tests::cuda {
namespace {

using at::Tensor;

constexpr int64_t kRows = 256, kColumns = 512;

struct Pattern {
  std::string name;
  std::vector<Tensor> leaves;
  std::function<Tensor()> forward;
  double floor;  // bytes: the forward's saved tensors and the incoming gradient, once, and the leaves' gradients, once
};

Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, at::kDouble).to(type).set_requires_grad(true);
}

std::vector<Pattern> patterns() {
  const double all = kRows * kColumns * sizeof(float), row = kColumns * sizeof(float), rows = kRows * sizeof(float);
  std::vector<Pattern> made;
  const auto x = leaf({kRows, kColumns}), y = leaf({kRows, kColumns}), z = leaf({kRows, kColumns}), w = leaf({kRows, kColumns});
  const auto bias = leaf({kColumns}), weight = leaf({kColumns}), half = leaf({kRows, kColumns}, at::kHalf),
             other = leaf({kRows, kColumns}, at::kHalf);
  made.push_back({"cos(cos(a + b + c + d))", {x, y, z, w}, [=] { return (x + y + z + w).cos().cos(); }, 7 * all});
  made.push_back({"gelu(x + bias)", {x, bias}, [=] { return at::gelu(x + bias); }, 3 * all + row});
  made.push_back({"silu(x) * y", {x, y}, [=] { return at::silu(x) * y; }, 6 * all});
  made.push_back({"silu(x) * y of float16", {half, other}, [=] { return at::silu(half) * other; }, 3 * all});
  made.push_back({"tanh(x) + y", {x, y}, [=] { return x.tanh() + y; }, 4 * all});
  made.push_back({"softmax(x)", {x}, [=] { return at::softmax(x, -1); }, 3 * all});
  made.push_back(
      {"layer_norm(x)", {x, weight, bias}, [=] { return at::layer_norm(x, {kColumns}, weight, bias); }, 3 * all + 3 * row + 2 * rows});
  made.push_back({"tanh(layer_norm(gelu(x)))",
                  {x, weight, bias},
                  [=] { return at::layer_norm(at::gelu(x), {kColumns}, weight, bias).tanh(); },
                  5 * all + 3 * row + 2 * rows});
  const auto labels = at::randint(kColumns, {kRows}, at::kLong);
  made.push_back({"cross_entropy(x)", {x}, [=] { return at::cross_entropy_loss(x, labels); }, 2 * all + 2 * rows});
  std::vector<Tensor> twelve;
  for (int i = 0; i < 12; ++i) twelve.push_back(leaf({kRows, kColumns}));
  made.push_back({"twelve leaves, tanh of each", twelve,
                  [=] {
                    Tensor sum = twelve[0].tanh();
                    for (size_t i = 1; i < twelve.size(); ++i) sum = sum + twelve[i].tanh();
                    return sum;
                  },
                  25 * all});
  return made;
}

// ATen's calls other than views.
size_t ops_of(const Graph& graph) {
  size_t count = 0;
  for (const auto& instr : graph.instrs) {
    const bool makes_something = !instr.outputs.empty() && instr.outputs[0].defined() && !graph.values[instr.outputs[0].index].is_view;
    if (instr.kind != capture::InstrKind::Event && makes_something) ++count;
  }
  return count;
}

struct Count {
  std::string name;
  size_t ops = 0, launches = 0;
  double moved = 0;  // relative to the floor
};

void backward(const Pattern& pattern, const Tensor& incoming) {
  for (const Tensor& leaf : pattern.leaves) leaf.mutable_grad() = Tensor();
  const Tensor result = pattern.forward();
  result.backward(result.dim() == 0 ? Tensor() : incoming);
}

Count count(const Pattern& pattern) {
  Count counted{pattern.name};
  const Tensor incoming = at::randn({kRows, kColumns}).to(pattern.leaves[0].scalar_type());
  hindcast::reset();
  {
    KeptGraphs kept;
    const auto guard = hindcast::enable(kept.compiler());
    backward(pattern, incoming);
    counted.ops = ops_of(*kept.graphs.at(0));
  }
  hindcast::reset();
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  const auto guard = hindcast::enable(options);
  for (int step = 0; step < 2; ++step) {
    take_launched();
    take_traffic();
    backward(pattern, incoming);
  }
  EXPECT_EQ(hindcast::stats().fused_graphs, 1U) << pattern.name;
  counted.launches = take_launched().size();
  const Traffic traffic = take_traffic();
  counted.moved = static_cast<double>(traffic.read + traffic.written) / pattern.floor;
  return counted;
}

std::string table_of(const std::vector<Count>& counts) {
  std::ostringstream text;
  text << "| the backward of | ops of ATen's | launches | bytes, of the floor |\n|---|---|---|---|\n" << std::fixed << std::setprecision(2);
  for (const Count& one : counts) text << "| `" << one.name << "` | " << one.ops << " | " << one.launches << " | " << one.moved << " |\n";
  return text.str();
}

TEST(Traffic, IsInTheDocs) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const CostsOfACard costs;
  const WithLimits limits(codegen::cuda::Limits{});  // an H200's
  at::manual_seed(1);
  std::vector<Count> counts;
  for (const Pattern& pattern : patterns()) {
    counts.push_back(count(pattern));
    // Separate launches read the small tensors of rows and columns, if there is a second one. Sums over rows are written in slices, which
    // the second launch reads.
    EXPECT_LE(counts.back().moved, 1.2) << pattern.name;
    EXPECT_GE(counts.back().moved, 0.95) << pattern.name << ": the floor is not one";
  }
  constexpr const char* kPage = HINDCAST_SOURCE_DIR "/docs/gpu.md";
  const std::string begin = "<!-- traffic: tests/codegen/cuda/traffic_test.cpp writes what follows -->\n",
                    end = "<!-- end of traffic -->\n";
  std::ifstream in(kPage);
  std::string page{std::istreambuf_iterator<char>(in), {}};
  const size_t from = page.find(begin), to = page.find(end);
  ASSERT_TRUE(from != page.npos && to != page.npos) << "docs/gpu.md has no place for the table";
  const std::string table = "\n" + table_of(counts) + "\n";
  if (std::getenv("HINDCAST_WRITE_TABLES") != nullptr) {
    std::ofstream(kPage) << page.replace(from + begin.size(), to - from - begin.size(), table);
  } else {
    EXPECT_EQ(page.substr(from + begin.size(), to - from - begin.size()), table)
        << "the first lines of this file say how it is written anew";
  }
}

// The gradients of x and of its weight share no intermediate results. Both read the incoming gradient, of 1 MiB.
TEST(Traffic, ALargeTensorThatTwoSumsReadIsReadOnce) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const CostsOfACard costs;
  at::manual_seed(2);
  const Tensor x = leaf({520, 512}), weight = leaf({512}), incoming = at::randn({520, 512});
  const auto gradients = [&] {
    for (const Tensor& one : {x, weight}) one.mutable_grad() = Tensor();
    (x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * weight).backward(incoming);
    return std::vector<Tensor>{x.grad(), weight.grad()};
  };
  const auto stock = gradients();
  hindcast::reset();
  const Options options{.compiler = compilers::fused(), .async = false};
  const auto guard = hindcast::enable(options);
  gradients();
  take_launched();
  const auto ours = gradients();
  EXPECT_THAT(take_launched(), testing::ElementsAre("rows", "merge_slices"));
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-4, 1e-4)) << i;
}

// The factors of many products are read together with one gradient. The stock engine reads each product's gradient and factors in turn.
TEST(Traffic, AFewOpsAtOnceShareARead) {
  const CostsOfACard costs;
  const auto graph = captured_graph([] {
    std::vector<Tensor> factors;
    for (int i = 0; i < 24; ++i) factors.push_back(at::mm(leaf({520, 8}), leaf({8, 512})));  // so that nobody waits for their gradients
    Tensor sum = factors[0] * factors[1];
    for (size_t i = 2; i < factors.size(); i += 2) sum = sum + factors[i] * factors[i + 1];
    sum.backward(at::ones({520, 512}));
  });
  for (const codegen::Group& group : codegen::fuse(*graph, codegen::cuda::cost_model()).groups) {
    EXPECT_LE(group.stores.size(), 4U);
    EXPECT_LE(group.loads.size(), 5U);
  }
}

}  // namespace
}  // namespace hindcast::tests::cuda
