#include "joints.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

namespace hindcast::tests {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Joint;
using capture::ValueId;
using capture::ValueIds;

ValueId JointBuilder::value(const at::Tensor& tensor, bool is_view) {
  capture::Value& value = graph_->values.emplace_back();
  value.dtype = tensor.scalar_type();
  for (const int64_t size : tensor.sizes()) value.sizes.push_back(graph_->symbols->integer(size));
  value.strides = tensor.strides().vec();
  value.is_view = is_view;
  tensors_.push_back(tensor);
  return {static_cast<uint32_t>(graph_->values.size() - 1)};
}

ValueId JointBuilder::primal(const at::Tensor& tensor) {
  primals_.push_back(value(tensor, false));
  return primals_.back();
}

ValueId JointBuilder::tangent(const at::Tensor& tensor) {
  if (tangents_.empty()) forward_end_ = static_cast<uint32_t>(graph_->instrs.size());
  tangents_.push_back(value(tensor, false));
  return tangents_.back();
}

ValueId JointBuilder::call(const char* name, const char* overload, std::vector<Arg> args) {
  return calls(name, overload, std::move(args))[0];
}

ValueIds JointBuilder::calls(const char* name, const char* overload, std::vector<Arg> args) {
  Instr instr;
  instr.op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  torch::jit::Stack stack;
  for (const Arg& arg : args) stack.push_back(arg.kind == Arg::Kind::Value ? c10::IValue(tensors_[arg.values[0].index]) : arg.constant);
  const torch::jit::Stack given = stack;
  instr.op->callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& result : stack) {
    if (result.isTensor()) {
      results.push_back(result.toTensor());
    } else {
      for (const at::Tensor& item : result.toTensorVector()) results.push_back(item);
    }
  }
  for (const at::Tensor& result : results) {
    const bool is_view =
        std::any_of(given.begin(), given.end(), [&](const c10::IValue& v) { return v.isTensor() && result.is_alias_of(v.toTensor()); });
    instr.outputs.push_back(value(result, is_view));
  }
  instr.args = std::move(args);
  graph_->instrs.push_back(std::move(instr));
  return graph_->instrs.back().outputs;
}

ValueId JointBuilder::mutate(ValueId base, const char* name, const char* overload, std::vector<Arg> args) {
  Instr instr;
  instr.kind = InstrKind::Mutate;
  instr.op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  instr.base = base;
  instr.args = {none()};
  instr.args.insert(instr.args.end(), args.begin(), args.end());
  instr.outputs = {value(tensors_[base.index].clone(), false)};
  graph_->instrs.push_back(std::move(instr));
  return graph_->instrs.back().outputs[0];
}

ValueId JointBuilder::add_gradients(ValueId a, ValueId b) {
  Instr instr;
  instr.kind = InstrKind::AddGrads;
  instr.inputs = {a, b};
  instr.outputs = {value(tensors_[a.index] + tensors_[b.index], false)};
  graph_->instrs.push_back(std::move(instr));
  return graph_->instrs.back().outputs[0];
}

Joint JointBuilder::joint(std::vector<ValueId> results, const std::vector<ValueId>& gradients) {
  if (tangents_.empty()) forward_end_ = static_cast<uint32_t>(graph_->instrs.size());
  auto graph = std::make_shared<Graph>(*graph_);
  graph->inputs = primals_;
  graph->inputs.insert(graph->inputs.end(), tangents_.begin(), tangents_.end());
  Joint joint;
  joint.primals = static_cast<uint32_t>(primals_.size());
  joint.results = static_cast<uint32_t>(results.size());
  joint.forward_end = forward_end_;
  graph->outputs = std::move(results);
  graph->outputs.insert(graph->outputs.end(), gradients.begin(), gradients.end());
  graph->verify();
  joint.graph = std::move(graph);
  return joint;
}

std::vector<at::Tensor> JointBuilder::inputs() const {
  std::vector<at::Tensor> inputs;
  for (const ValueId value : primals_) inputs.push_back(tensors_[value.index]);
  for (const ValueId value : tangents_) inputs.push_back(tensors_[value.index]);
  return inputs;
}

namespace {

// Matrices, columns and rows, all of which broadcast to one matrix.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed), n_(2 + below(6)) {}

  RandomJoint run() {
    at::manual_seed(n_);
    for (size_t i = 1 + below(4); i-- > 0;) values_.push_back(builder_.primal(some_tensor()));
    for (size_t i = below(30); i-- > 0;) step();
    const size_t forward = values_.size();
    std::vector<ValueId> results = some_of(values_, below(4)), tangents;
    for (size_t i = 1 + below(3); i-- > 0;) tangents.push_back(builder_.tangent(some_tensor()));
    // Formulas read forward results, and tangents.
    for (size_t i = below(40); i-- > 0;) {
      if (below(2) == 0) {
        step();
      } else {
        tangents.push_back(builder_.mul(pick(tangents), values_[below(forward)]));
        if (below(4) == 0) tangents.push_back(builder_.sum(tangents.back(), below(2)));
        if (below(4) == 0) tangents.push_back(builder_.add_gradients(tangents.back(), tangents.back()));
        if (below(8) == 0) values_.push_back(tangents.back());
      }
    }
    std::vector<ValueId> gradients = some_of(tangents, 1 + below(4));
    for (const ValueId value : some_of(values_, below(2))) gradients.push_back(value);
    return {builder_.joint(std::move(results), gradients), builder_.inputs()};
  }

 private:
  uint32_t below(size_t count) { return static_cast<uint32_t>(random_() % count); }
  ValueId pick(const std::vector<ValueId>& values) { return values[below(values.size())]; }
  ValueId pick() { return pick(values_); }

  std::vector<ValueId> some_of(const std::vector<ValueId>& values, size_t count) {
    std::vector<ValueId> some;
    for (size_t i = 0; i < count; ++i) some.push_back(below(6) == 0 ? ValueId() : pick(values));
    return some;
  }

  at::Tensor some_tensor() {
    const int64_t rows = below(4) == 0 ? 1 : n_, columns = below(4) == 0 ? 1 : n_;
    return at::rand({rows, columns}) - 0.5;
  }

  void step() {
    constexpr const char* kUnary[] = {"aten::cos", "aten::tanh", "aten::sigmoid", "aten::relu", "aten::abs"};
    const ValueId x = pick(), y = pick();
    const auto& [a, b] = std::pair(builder_.tensor(x), builder_.tensor(y));
    switch (below(10)) {
      case 0:
      case 1:
        return add(builder_.unary(kUnary[below(std::size(kUnary))], x));
      case 2:
        return add(builder_.add(x, y));
      case 3:
        return add(builder_.mul(x, y));
      case 4:
        return add(builder_.t(x));
      case 5:
        return add(builder_.sum(x, below(2)));
      case 6:
        if (a.size(1) == b.size(0)) add(builder_.mm(x, y));
        return;
      case 7:
        return add(
            builder_.call("aten::slice", "Tensor",
                          {JointBuilder::of(x), JointBuilder::of(0), JointBuilder::of(0), JointBuilder::of(1), JointBuilder::of(1)}));
      case 8:
        if (below(2) == 0)
          return add(builder_.call("aten::bernoulli", "p", {JointBuilder::of(x), JointBuilder::of(0.5), JointBuilder::none()}));
        if (a.is_contiguous()) add(builder_.mutate(x, "aten::sigmoid_", "", {}));
        return;
      default:
        for (const ValueId value : builder_.calls(
                 "aten::var_mean", "correction",
                 {JointBuilder::of(x), JointBuilder::of(std::vector<int64_t>{below(2)}), JointBuilder::of(0), JointBuilder::of(true)})) {
          if (below(2) == 0) add(value);
        }
    }
  }
  void add(ValueId value) { values_.push_back(value); }

  std::mt19937 random_;
  const uint32_t n_;
  JointBuilder builder_;
  std::vector<ValueId> values_;
};

}  // namespace

RandomJoint random_joint(uint32_t seed) { return Generator(seed).run(); }

std::unordered_map<uint32_t, at::Tensor> values_of(const Graph& graph, const std::vector<at::Tensor>& inputs) {
  std::unordered_map<uint32_t, at::Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.inputs[i].defined()) values[graph.inputs[i].index] = inputs[i];
  }
  graph.replay(values);
  return values;
}

}  // namespace hindcast::tests
