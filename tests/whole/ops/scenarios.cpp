#include "tests/whole/ops/scenarios.h"

#include <algorithm>
#include <map>

namespace hindcast::tests::ops {
namespace {

constexpr size_t kMostLeaves = 4;  // of an op with more, the first ones are tried alone

bool is_complex(const Setting& setting) { return c10::isComplexType(setting.dtype); }

/// A run for each value of the varied field, sometimes a plain one in between: all in one cache entry.
class Runs {
 public:
  explicit Runs(Setting base) : base_(base) {}

  Runs& then(int64_t n) {
    base_.n = n;
    return add(base_);
  }
  Runs& operands(Operands operands) {
    Setting run = base_;
    run.operands = operands;
    return add(run);
  }
  Runs& values(Values values) {
    Setting run = base_;
    run.values = values;
    return add(run);
  }
  Runs& root(Root root) {
    Setting run = base_;
    run.root = root;
    return add(run);
  }
  Runs& with_grads() {
    Setting run = base_;
    run.grads_before = true;
    return add(run);
  }
  operator std::vector<Setting>() const { return runs_; }

 private:
  Runs& add(Setting run) {
    run.seed = runs_.size() + 1;
    runs_.push_back(run);
    return *this;
  }

  Setting base_;
  std::vector<Setting> runs_;
};

std::vector<Setting> values_and_sizes(const Row& row, const Setting& base) {
  Runs runs(base);
  runs.then(3).then(3).with_grads();
  if (!row.finite) runs.values(Values::ZerosAndNaN);
  if (mentions(row.arguments, "N")) runs.then(5).then(3).then(7).then(1);
  return runs;
}

std::vector<Setting> operand_layouts(const Setting& base) {
  Runs runs(base);
  runs.then(3).operands(Operands::Transposed).operands(Operands::Expanded).then(4);
  runs.operands(Operands::Sliced).operands(Operands::ChannelsLast).operands(Operands::Negated);
  if (is_complex(base)) runs.operands(Operands::Conjugated);
  return runs.then(3);
}

std::vector<Setting> root_layouts(Setting base) {
  base.root = Root::Contiguous;
  Runs runs(base);
  runs.then(3).root(Root::Transposed).root(Root::Expanded).then(4).root(Root::Zeros).root(Root::NaN);
  runs.root(Root::Sliced).root(Root::ChannelsLast);
  if (is_complex(base)) runs.root(Root::Conjugated);
  return runs.then(3);
}

std::vector<Setting> three_runs(const Setting& base) { return Runs(base).then(3).then(3).then(4); }

}  // namespace

c10::ScalarType dtype_of(const std::string& name) {
  static const std::map<std::string, c10::ScalarType> dtypes = {{"f32", c10::ScalarType::Float},
                                                                {"f64", c10::ScalarType::Double},
                                                                {"c64", c10::ScalarType::ComplexFloat},
                                                                {"bf16", c10::ScalarType::BFloat16}};
  return dtypes.at(name);
}

std::vector<Scenario> scenarios(const Row& row, const RowShape& shape) {
  Setting base;
  base.dtype = dtype_of(row.dtypes.front());
  std::vector<Scenario> all = {{"values and sizes", values_and_sizes(row, base)}, {"root gradients", root_layouts(base)}};
  const auto add = [&](const std::string& name, std::vector<Setting> runs) { all.push_back({name, std::move(runs)}); };

  Setting varied = base;
  if (!row.plain) {
    add("operand layouts", operand_layouts(base));
    for (const Operands view : {Operands::TransposeOfLeaf, Operands::ExpandOfLeaf}) {
      varied.operands = view;
      add("views of leaves", three_runs(varied));
    }
  }
  varied = base;
  for (const Hooks hooks : {Hooks::OnLeafAndOutput, Hooks::RetainGrad}) {
    varied.hooks = hooks;
    add("hooks", three_runs(varied));
  }
  varied = base;
  varied.root = Root::Contiguous;
  if (shape.outputs > 1) {
    varied.outputs = Outputs::First;
    add("first output", three_runs(varied));
    varied.outputs = Outputs::Last;
    add("last output", three_runs(varied));
  }
  varied.outputs = Outputs::All;
  for (size_t leaf = 0; shape.leaves > 1 && leaf < std::min(shape.leaves, kMostLeaves); ++leaf) {
    Setting alone = varied;
    alone.only_leaf = leaf;
    add("one leaf requires grad", three_runs(alone));
    Setting wanted = varied;
    wanted.only_wanted = leaf;
    add("one gradient wanted", three_runs(wanted));
  }
  for (size_t i = 1; i < row.dtypes.size(); ++i) {
    varied = base;
    varied.dtype = dtype_of(row.dtypes[i]);
    add("another dtype", values_and_sizes(row, varied));
    if (is_complex(varied)) {
      add("complex operands", operand_layouts(varied));
      add("complex root gradients", root_layouts(varied));
    }
  }
  return all;
}

}  // namespace hindcast::tests::ops
