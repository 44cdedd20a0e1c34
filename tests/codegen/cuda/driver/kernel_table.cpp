#include "tests/codegen/cuda/driver/kernel_table.h"
#include "tests/support/forwarded_costs.h"

#include "codegen/cuda/cost_model.h"
#include "codegen/cuda/source.h"
#include "codegen/fuse/fuse.h"
#include "codegen/kernel/device_library.h"
#include "engine/optim/rules.h"
#include "hindcast/hindcast.h"
#include "tests/support/same_grads.h"

#include <ATen/ATen.h>

#include <functional>
#include <future>
#include <set>

namespace hindcast::tests {
namespace {

using at::Tensor;

struct Pattern {
  std::string name;
  std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)> result;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes = {64, 256};  // weight and bias have the second size
};

std::vector<Pattern> patterns() {
  return {
      {"cos(cos(x + w + b))", [](const Tensor& x, const Tensor& w, const Tensor& b) { return (x + w + b).cos().cos(); }},
      {"gelu(x + b), bfloat16", [](const Tensor& x, const Tensor&, const Tensor& b) { return at::gelu(x + b); }, at::kBFloat16},
      {"silu(x) * y of halves",
       [](const Tensor& x, const Tensor&, const Tensor&) { return at::silu(x.slice(1, 0, 128)) * x.slice(1, 128); }},
      {"log_softmax(x)", [](const Tensor& x, const Tensor&, const Tensor&) { return at::log_softmax(x, -1); }},
      {"layer_norm(x)", [](const Tensor& x, const Tensor& w, const Tensor& b) { return at::layer_norm(x, {256}, w, b); }},
      {"silu(batch_norm(x))",
       [](const Tensor& x, const Tensor& w, const Tensor& b) {
         return at::silu(at::batch_norm(x, w, b, {}, {}, /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false));
       },
       at::kFloat,
       {8, 16, 8, 8}},
  };
}

/// The cost model of a card, for the CPU's tensors, since there is no card.
class OfCpuTensors final : public ForwardedCosts {
 public:
  c10::DeviceType device() const override { return c10::kCPU; }

 private:
  const codegen::CostModel& of() const override { return codegen::cuda::cost_model(); }
};
constinit const OfCpuTensors kCosts{};

std::vector<std::string> texts_of(const codegen::Body& body) {
  const codegen::cuda::Entries first = codegen::cuda::first_entries_of(body);
  std::vector<std::string> texts = {codegen::cuda::source_of(body, first)};
  codegen::cuda::entries_of(body).for_each([&](codegen::cuda::Entry entry) {
    if (!first.has(entry)) texts.push_back(codegen::cuda::source_of(body, {entry}));
  });
  return texts;
}

/// The kernels of one backward's groups, without duplicates: the texts of each, by its whole text.
std::map<std::string, std::vector<std::string>> kernels_of(const Pattern& pattern) {
  std::map<std::string, std::vector<std::string>> kernels;
  Options options;
  options.compiler = Compiler([&](const std::shared_ptr<const Graph>& graph) {
    for (const auto& group : codegen::fuse(*graph, kCosts).groups) kernels[codegen::cuda::source_of(group.body)] = texts_of(group.body);
    return std::vector<SegmentFunction>(graph->segments().size());
  });
  run_hindcast(
      [&](uint64_t seed) -> std::vector<Tensor> {
        at::manual_seed(seed);
        const auto of = at::TensorOptions(pattern.type);
        const Tensor x = at::randn(pattern.sizes, of).set_requires_grad(true);
        const Tensor weight = at::randn({pattern.sizes[1]}, of).set_requires_grad(true);
        const Tensor bias = at::randn({pattern.sizes[1]}, of).set_requires_grad(true);
        const Tensor y = pattern.result(x, weight, bias);
        y.backward(at::randn_like(y));
        return {x.grad()};
      },
      1, options);
  return kernels;
}

}  // namespace

std::vector<PatternKernel> kernels_of_patterns() {
  std::vector<PatternKernel> all;
  for (const Pattern& pattern : patterns()) {
    for (const auto& [whole, texts] : kernels_of(pattern)) all.push_back({pattern.name, whole, texts});
  }
  const engine::Update update = engine::adam({.lr = 1e-3, .weight_decay = 0.1, .is_decoupled = true, .amsgrad = true}, 1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    engine::Formula formula(type, /*clips=*/true);
    update.formula(formula, update.flags);
    all.push_back(
        {std::string("AdamW, clipped, ") + c10::toString(type), codegen::cuda::source_of(formula.body()), texts_of(formula.body())});
  }
  return all;
}

std::vector<TableRow> rows_of(const codegen::cuda::Nvrtc& nvrtc) {
  // All entry points at once: each compiles to the same code as in an object of its own, and NVRTC reads the headers once.
  const auto made = [&](const std::string& whole, int architecture) {
    std::map<std::string, Made> by_entry;
    auto code = nvrtc.compile(whole, codegen::device_library(), codegen::cuda::kernel_options(architecture));
    auto accesses = wide_accesses_in(disassembled(code.object));
    for (const auto& [entry, use] : uses_in(code.log)) by_entry[entry] = {use, accesses.at(entry)};
    return by_entry;
  };
  std::vector<TableRow> rows;
  for (const auto& [pattern, whole, texts] : kernels_of_patterns()) {
    std::map<int, std::future<std::map<std::string, Made>>> by_architecture;
    for (const int architecture : kArchitectures) by_architecture[architecture] = std::async(std::launch::async, made, whole, architecture);
    std::map<std::string, TableRow> by_kernel;
    for (auto& [architecture, kernels] : by_architecture) {
      for (const auto& [kernel, what] : kernels.get()) {
        by_kernel[kernel].pattern = pattern;
        by_kernel[kernel].kernel = kernel;
        by_kernel[kernel].by_architecture[architecture] = what;
      }
    }
    for (const auto& [kernel, row] : by_kernel) rows.push_back(row);
  }
  return rows;
}

std::string markdown_of(const std::vector<TableRow>& rows) {
  // One number if all architectures have the same.
  const auto cell = [](const TableRow& row, auto value) {
    std::set<std::string> different;
    std::string all;
    for (const auto& [architecture, made] : row.by_architecture) {
      const std::string text = value(made);
      different.insert(text);
      all += (all.empty() ? "" : " / ") + text;
    }
    return different.size() == 1 ? *different.begin() : all;
  };
  std::string text =
      "| the backward of, or the step of | kernel | registers | shared bytes | bytes of stack, spilled | loads, stores of 16 bytes "
      "|\n|---|---|---|---|---|---|\n";
  for (const TableRow& row : rows) {
    const std::string registers = cell(row, [](const Made&made) { return std::to_string(made.use.registers); }),
                      shared = cell(row, [](const Made&made) { return std::to_string(made.use.shared_bytes); }),
                      spilled = cell(row,
                                     [](const Made&made) {
                                       return std::to_string(made.use.stack_bytes) + ", " + std::to_string(made.use.spilled_bytes);
                                     }),
                      wide = cell(row, [](const Made&made) {
                        return std::to_string(made.accesses.loads) + ", " + std::to_string(made.accesses.stores);
                      });
    text += "| `" + row.pattern + "` | `" + row.kernel + "` | " + registers + " | " + shared + " | " + spilled + " | " + wide + " |\n";
  }
  return text;
}

}  // namespace hindcast::tests
