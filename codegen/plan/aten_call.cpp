#include "codegen/plan/aten_call.h"

#include "base/format.h"

#include <string>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

class AtenCall final : public OpCall {
 public:
  AtenCall(const Group& group, std::shared_ptr<const capture::Graph> graph)
      : graph_(std::move(graph)), instrs_(instrs_of(group)), loads_(inputs_of(group)), results_(results_of(group)) {}

  void run(const Step& step, Slots& slots, const capture::Env& env) const override {
    std::unordered_map<uint32_t, at::Tensor> values;
    for (size_t i = 0; i < loads_.size(); ++i) {
      at::Tensor& slot = slots[step.inputs[i].slot];
      values[loads_[i].index] = step.inputs[i].last ? std::move(slot) : slot;
    }
    for (const uint32_t i : instrs_) capture::Graph::replay(values, graph_->instrs[i], env);
    for (size_t i = 0; i < results_.size(); ++i) slots[step.outputs[i]] = std::move(values.at(results_[i].index));
  }

  std::string describe() const override { return base::format("{} ops through ATen", instrs_.size()); }

 private:
  std::shared_ptr<const capture::Graph> graph_;
  std::vector<uint32_t> instrs_;
  std::vector<capture::ValueId> loads_, results_;
};

}  // namespace

std::unique_ptr<const OpCall> make_aten_call(const Group& group, std::shared_ptr<const capture::Graph> graph) {
  return std::make_unique<AtenCall>(group, std::move(graph));
}

}  // namespace hindcast::codegen
