// The program has three parts: fixed text, ATen's ops as one call per line, and the kernel's arguments. The kernel is called once, with
// copies that have the layout of its domain; the handling of tensors with other strides is not reproduced.

#include "codegen/cpu/reproducer.h"

#include "base/check.h"
#include "base/format.h"
#include "codegen/cpu/source.h"
#include "codegen/kernel/device_library.h"
#include "codegen/kernel/launch_args.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace hindcast::codegen::cpu {
namespace {

using base::format;
using capture::Arg;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

/// Thrown if the group cannot be written as a program.
struct NotWritable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr std::string_view kHead =
    R"(// Runs the kernel of kernel.cpp and ATen's ops on random tensors and compares. Returns 1 if the kernel is wrong.
//
//   c++ -std=c++20 -O2 -march=native -ffp-contract=off -fno-math-errno -I. -I$LIBTORCH/include \
//     main.cpp kernel.cpp -L$LIBTORCH/lib -Wl,-rpath,$LIBTORCH/lib -ltorch -ltorch_cpu -lc10 -o reproducer
//
// $LIBTORCH is LibTorch's folder. The random tensors have the types, sizes and strides of those that were given; inputs.txt has
// their ranges.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <vector>

#include "codegen/device/cpu_arguments.h"

extern "C" {
void dense(const hindcast::device::LoopArguments& arguments);
void rows(const hindcast::device::RowLoopArguments& arguments);
}

using Tensors = std::vector<at::Tensor>;

at::Tensor call(const char* name, const char* overload, std::vector<c10::IValue> stack, size_t result = 0) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(&stack);
  return stack.at(result).toTensor();
}

at::Tensor random(std::vector<int64_t> sizes, std::vector<int64_t> strides, at::ScalarType type, int64_t below) {
  std::vector<int64_t> in_memory = sizes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] == 0) in_memory[d] = std::min<int64_t>(sizes[d], 1);
  }
  static const at::Generator same_every_time = at::detail::createCPUGenerator(1);
  const at::Tensor tensor = at::empty_strided(in_memory, strides, type);
  const bool numbers = at::isFloatingType(type) || at::isComplexType(type);
  return (numbers ? tensor.normal_(0, 1, same_every_time) : tensor.random_(0, below, same_every_time)).as_strided(sizes, strides);
}

)";

constexpr std::string_view kTail = R"(
double unit_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
    case at::kComplexDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kHalf:
      return std::numeric_limits<c10::Half>::epsilon();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::epsilon();
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

at::Tensor to_double(const at::Tensor& tensor) {
  return tensor.is_complex() ? tensor.to(at::kComplexDouble) : tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
}

// In a row, of complex numbers both parts.
at::Tensor parts_of(const at::Tensor& tensor) {
  return (tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor).reshape({-1}).to(at::kDouble);
}

int main() {
  const Tensors given = inputs();
  Tensors in_double;
  for (const at::Tensor& tensor : given) in_double.push_back(to_double(tensor));
  const Tensors ours = by_kernel(given), aten = by_aten(given, false), exact = by_aten(in_double, true);
  bool wrong = false;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto flat = [&](const at::Tensor& tensor) { return parts_of(in_order(i, tensor)); };
    const at::Tensor truth = flat(exact[i]), finite = truth.isfinite().logical_and(flat(aten[i]).isfinite());
    const auto largest = [&](const at::Tensor& t) { return t.numel() == 0 ? 0.0 : t.masked_fill(finite.logical_not(), 0).abs().max().item<double>(); };
    const at::Tensor kernel = parts_of(ours[i]);
    const double error = largest(kernel.sub(truth)), of_aten = largest(flat(aten[i]).sub(truth));
    const double allowed = 4 * of_aten + 64 * unit_of(aten[i].scalar_type()) * largest(truth);
    const bool good = error <= allowed && kernel.isfinite().equal(flat(aten[i]).isfinite());
    wrong = wrong || !good;
    std::cout << "result " << i << ": off by " << error << ", ATen by " << of_aten << ", allowed are " << allowed << (good ? "\n" : ": WRONG\n");
  }
  return wrong ? 1 : 0;
}
)";

template <class List, class Text>
std::string join(const List& list, Text text) {
  std::string result;
  for (const auto& item : list) result += (result.empty() ? "" : ", ") + std::string(text(item));
  return result;
}

std::string number(int64_t value) { return std::to_string(value); }
std::string number(double value) {
  if (std::isnan(value)) return "std::numeric_limits<double>::quiet_NaN()";
  if (std::isinf(value)) return std::string(value < 0 ? "-" : "") + "std::numeric_limits<double>::infinity()";
  return "double{" + format("{:.17g}", value) + "}";
}
template <class List>
std::string int_list(const List& list) {
  return "std::vector<int64_t>{" + join(list, [](int64_t value) { return number(value); }) + "}";
}
std::string aten_type(at::ScalarType type) { return format("at::ScalarType::{}", c10::toString(type)); }
std::string name_of(ValueId value) { return value.defined() ? format("v{}", value.index) : "at::Tensor()"; }

std::string literal(const c10::IValue& value) {
  if (value.isNone()) return "c10::IValue()";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return "int64_t{" + number(value.toInt()) + "}";
  if (value.isDouble()) return number(value.toDouble());
  if (value.isComplexDouble())
    return format("c10::complex<double>({}, {})", number(value.toComplexDouble().real()), number(value.toComplexDouble().imag()));
  if (value.isIntList()) return int_list(value.toIntVector());
  if (value.isBoolList()) return "c10::List<bool>({" + join(value.toBoolList().vec(), [](bool on) { return on ? "true" : "false"; }) + "})";
  if (value.isString()) return "std::string(\"" + value.toStringRef() + "\")";
  if (value.isDevice()) return "c10::Device(\"" + value.toDevice().str() + "\")";
  if (value.isTensor() && !value.toTensor().defined()) return "at::Tensor()";
  if (value.isTensor() && value.toTensor().dim() == 0)
    return format("at::scalar_tensor({}, {})", number(value.toTensor().item<double>()), aten_type(value.toTensor().scalar_type()));
  throw NotWritable("an argument of type " + value.tagKind());
}

class Program {
 public:
  Program(const capture::Graph& graph, const Group& group, const std::unordered_map<uint32_t, at::Tensor>& given)
      : graph_(graph), group_(group), given_(given) {
    if (group.body.product) throw NotWritable("the kernel computes a matrix product by blocks that are compiled apart");
    for (const ValueId input : inputs_of(group)) {  // an input that is read in two ways appears once
      if (std::find(inputs_.begin(), inputs_.end(), input) == inputs_.end()) inputs_.push_back(input);
    }
    HC_CHECK(capture::Evaluator(*graph.symbols).evaluate(capture::bindings_at_capture(*graph.symbols), env_));
    domain_ = sizes_of(group.domain, env_);
    if (!group.body.by_rows) {
      for (const int64_t size : domain_) {
        order_.push_back(static_cast<int64_t>(order_.size()));
        rows_ *= size;
      }
      return;
    }
    for (const bool column : {false, true}) {
      for (uint8_t axis = 0; axis < domain_.size(); ++axis) {
        if ((group.columns >> axis & 1) != column) continue;
        order_.push_back(axis);
        (column ? columns_ : rows_) *= domain_[axis];
        if (column && (group.channels >> axis & 1)) segments_ *= domain_[axis];
      }
    }
  }

  std::string text() const { return std::string(kHead) + inputs() + by_aten() + by_kernel() + in_order() + std::string(kTail); }

 private:
  std::string inputs() const {
    std::string text = "Tensors inputs() {\n  return {\n";
    for (const ValueId input : inputs_) {
      const at::Tensor& tensor = given_.at(input.index);
      text += format("      random({{{}}}, {{{}}}, {}, {}),\n", join(tensor.sizes(), [](int64_t n) { return number(n); }),
                     join(tensor.strides(), [](int64_t n) { return number(n); }), aten_type(tensor.scalar_type()),
                     group_.body.by_rows ? std::max<int64_t>(columns_, 1) : 2);
    }
    return text + "  };\n}\n\n";
  }

  std::string argument(const Instr& instr, size_t a) const {
    const Arg& arg = instr.args[a];
    switch (arg.kind) {
      case Arg::Kind::Constant:
        // softmax' backward takes its input's type as an argument, and rejects another.
        if (instr.op->schema().arguments()[a].name() == "input_dtype")
          return format("exact ? int64_t{{{}}} : {}", static_cast<int>(at::kDouble), literal(arg.constant));
        return literal(arg.constant);
      case Arg::Kind::Value:
        return name_of(arg.values[0]);
      case Arg::Kind::ValueList:
        return "Tensors{" + join(arg.values, name_of) + "}";
      case Arg::Kind::OptionalValueList:
        return "c10::List<std::optional<at::Tensor>>({" + join(arg.values, name_of) + "})";
      case Arg::Kind::Int:
        return "int64_t{" + number(env_.integer(arg.exprs[0])) + "}";
      case Arg::Kind::IntList:
        return "std::vector<int64_t>{" + join(arg.exprs, [&](capture::ExprId e) { return number(env_.integer(e)); }) + "}";
      case Arg::Kind::Float:
        return number(env_.real(arg.exprs[0]));
    }
    return "";
  }

  std::string by_aten() const {
    std::string text = "Tensors by_aten(const Tensors& given, [[maybe_unused]] bool exact) {\n";
    for (size_t i = 0; i < inputs_.size(); ++i)
      text += format("  [[maybe_unused]] const at::Tensor {} = given[{}];\n", name_of(inputs_[i]), i);
    for (const uint32_t member : instrs_of(group_)) {
      const Instr& instr = graph_.instrs[member];
      if (instr.kind == InstrKind::AddGrads) {
        text +=
            format("  const at::Tensor {} = {}.add({});\n", name_of(instr.outputs[0]), name_of(instr.inputs[0]), name_of(instr.inputs[1]));
        continue;
      }
      if (instr.kind != InstrKind::Op) throw NotWritable("a group with an in-place op");
      const auto& name = instr.op->operator_name();
      std::string arguments;
      for (size_t a = 0; a < instr.args.size(); ++a) arguments += (a == 0 ? "" : ", ") + argument(instr, a);
      for (size_t i = 0; i < instr.outputs.size(); ++i) {
        if (!instr.outputs[i].defined()) continue;
        text += format("  [[maybe_unused]] const at::Tensor {} = call(\"{}\", \"{}\", {{{}}}, {});  // {}\n", name_of(instr.outputs[i]),
                       name.name, name.overload_name, arguments, i, graph_.origins[instr.origin]);
      }
    }
    return text + "  return {" + join(stored_values_of(group_), name_of) + "};\n}\n\n";
  }

  // The function that runs the kernel. The order of axes is the kernel's: that of the results, or rows and then columns.
  std::string by_kernel() const {
    const Body& body = group_.body;
    std::string text = "Tensors by_kernel(const Tensors& given) {\n  Tensors tensors;\n";
    for (size_t i = 0; i < body.loads.size(); ++i) text += load(i);
    for (const BodyStore& store : body.stores) {
      text += format("  tensors.push_back(at::zeros({{{}}}, {}));\n", count(store.extent),
                     aten_type(store.extent == Extent::Columns || store.extent == Extent::Channels ? body.compute : store.type));
    }
    text +=
        "  std::vector<char*> pointers;\n  std::vector<long> steps;\n  for (at::Tensor& tensor : tensors) {\n"
        "    pointers.push_back(static_cast<char*>(tensor.data_ptr()));\n    steps.push_back(tensor.element_size());\n  }\n"
        "  const std::vector<double> scalars{" +
        join(ScalarArgs(group_).values(env_), [](double value) { return number(value); }) + "};\n";
    text += body.by_rows ? call_by_rows() : call_dense();
    return text + format("  return {{tensors.begin() + {}, tensors.end()}};\n}}\n\n", body.loads.size());
  }

  // A copy of an input in the layout that the kernel's load expects.
  std::string load(size_t i) const {
    const Body& body = group_.body;
    const at::Tensor& original = given_.at(group_.loads[i].index);
    at::Tensor tensor = original;
    auto steps = byte_strides_of(tensor, group_.accesses[i], domain_, env_);
    for (int64_t& step : steps) step /= static_cast<int64_t>(tensor.element_size());
    const bool was_copied = !tensor.is_same(original);
    const auto input = std::find(inputs_.begin(), inputs_.end(), group_.loads[i]);
    std::string read = format("given[{}]", input - inputs_.begin());
    if (!group_.accesses[i].offsets.empty())
      read = format("at::constant_pad_nd({}, {})", read, int_list(pad_of(original, group_.accesses[i], env_)));
    std::string first;
    if (body.by_rows && body.loads[i].pattern == AccessPattern::Broadcast)
      first = format(".reshape({{{}, {}}}).narrow(1, 0, 1)", rows_, columns_);
    if (body.by_rows && body.loads[i].pattern == AccessPattern::PerSegment)
      first = format(".reshape({{{}, {}, {}}}).narrow(2, 0, 1)", rows_, segments_, columns_ / segments_);
    return format("  tensors.push_back({}{}.as_strided({}, {}).permute({}){}.contiguous());\n", read, was_copied ? ".contiguous()" : "",
                  int_list(domain_), int_list(steps), int_list(order_), first);
  }

  std::string call_by_rows() const {
    const Body& body = group_.body;
    const int64_t segment = segments_ == 0 ? 0 : columns_ / segments_;
    std::string text = "  std::vector<long> segment_strides(steps);\n";
    for (size_t i = 0; i < body.loads.size() + body.stores.size(); ++i) {
      const auto [by_row, by_segment] = i < body.loads.size() ? steps_of_load(body.loads[i].pattern, segment)
                                                              : steps_of_store(body.stores[i - body.loads.size()].extent, segment);
      text += format("  steps[{}] *= {};\n  segment_strides[{}] *= {};\n", i, by_row, i, by_segment);
    }
    text += format("  std::vector<double> kept({});\n", row_scratch(body) * columns_ + 1);
    text += format(
        "  rows({{pointers.data(), scalars.data(), {}, steps.data(), {}, segment_strides.data(), {}, "
        "reinterpret_cast<char*>(kept.data())}});\n",
        rows_, segments_, segment);
    for (size_t i = 0; i < body.stores.size(); ++i) {
      if (body.stores[i].extent == Extent::Channels) text += sum_by_channel(body.loads.size() + i);
    }
    return text;
  }

  // Elements from one row to the next, and from one segment of a row to the next.
  std::pair<int64_t, int64_t> steps_of_load(AccessPattern pattern, int64_t segment) const {
    switch (pattern) {
      case AccessPattern::Dense:
        return {columns_, segment};
      case AccessPattern::Broadcast:
        return {1, 0};
      case AccessPattern::PerSegment:
        return {segments_, 1};
    }
    return {};
  }
  std::pair<int64_t, int64_t> steps_of_store(Extent extent, int64_t segment) const {
    switch (extent) {
      case Extent::Element:
        return {columns_, segment};
      case Extent::Columns:
        return {0, segment};
      case Extent::Channels:
        return {segments_, 1};
      case Extent::Row:
        return {1, 0};
      case Extent::Segment:
        return {0, 0};
    }
    return {};
  }

  std::string call_dense() const {
    const auto& loads = group_.body.loads;
    if (std::all_of(loads.begin(), loads.end(), [](const BodyLoad& load) { return load.pattern == AccessPattern::Dense; }))
      return format("  dense({{pointers.data(), scalars.data(), {}}});\n", rows_);
    return format(  // one call per element, since broadcast operands are broadcast only within a call
        "  for (long i = 0; i < {}; ++i) {{\n    dense({{pointers.data(), scalars.data(), 1}});\n"
        "    for (size_t p = 0; p < pointers.size(); ++p) pointers[p] += steps[p];\n  }}\n",
        rows_);
  }

  std::string in_order() const {
    using Dims = std::vector<int64_t>;
    std::string text =
        "// One of ATen's results, in the order of the kernel's.\n"
        "at::Tensor in_order([[maybe_unused]] size_t result, const at::Tensor& tensor) {\n";
    for (size_t i = 0; i < group_.body.stores.size(); ++i) {
      const bool is_in_order = i >= group_.orders.size() || group_.orders[i].empty();  // the parts of a concat always are
      const std::string as_it_lies =
          is_in_order ? "tensor" : format("tensor.permute({})", int_list(Dims(group_.orders[i].begin(), group_.orders[i].end())));
      if (group_.body.stores[i].extent == Extent::Element) {
        text += format("  if (result == {}) return {}.reshape({}).permute({}).reshape({{-1}});\n", i, as_it_lies, int_list(domain_),
                       int_list(order_));
      } else if (!is_in_order) {
        text += format("  if (result == {}) return {}.reshape({{-1}});\n", i, as_it_lies);
      }
    }
    return text + "  return tensor.reshape({-1});\n}\n";
  }

  // Sums the results over channels: the kernel writes one for every segment of every row.
  std::string sum_by_channel(size_t tensor) const {
    std::vector<int64_t> sizes, summed;
    for (const int64_t axis : order_) {
      const bool is_channel = group_.channels >> axis & 1;
      if (!is_channel && (group_.columns >> axis & 1)) continue;
      if (!is_channel) summed.push_back(static_cast<int64_t>(sizes.size()));
      sizes.push_back(domain_[static_cast<size_t>(axis)]);
    }
    const std::string sum = summed.empty() ? "" : format(".sum(at::IntArrayRef({}))", int_list(summed));
    return format("  tensors[{}] = tensors[{}].reshape({}){};\n", tensor, tensor, int_list(sizes), sum);
  }

  int64_t count(Extent extent) const {
    switch (extent) {
      case Extent::Element:
        return rows_ * columns_;
      case Extent::Segment:
      case Extent::Channels:
        return rows_ * segments_;
      case Extent::Row:
        return rows_;
      case Extent::Columns:
        return columns_;
    }
    return 0;
  }

  const capture::Graph& graph_;
  const Group& group_;
  const std::unordered_map<uint32_t, at::Tensor>& given_;
  std::vector<ValueId> inputs_;
  capture::Env env_;
  Ints domain_;
  std::vector<int64_t> order_;
  int64_t rows_ = 1, columns_ = 1, segments_ = 1;
};

}  // namespace

std::vector<ProgramFile> reproducer(const capture::Graph& graph, const Group& group,
                                    const std::unordered_map<uint32_t, at::Tensor>& given) {
  std::vector<ProgramFile> files = {{"kernel.cpp", source_of(group.body)}};
  for (const DeviceHeader& header : device_library()) files.push_back({std::string(header.name), std::string(header.text)});
  try {
    files.push_back({"main.cpp", Program(graph, group, given).text()});
  } catch (const NotWritable& error) {
    files.push_back({"no_main.txt", format("There is no program: {}.\n", error.what())});
  }
  return files;
}

}  // namespace hindcast::codegen::cpu
