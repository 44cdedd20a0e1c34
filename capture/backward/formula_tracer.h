#pragma once
// Runs a node's functional form on stand-ins, so that the ATen calls of its formula become instrs.

#include "capture/backward/fact_exprs.h"
#include "capture/backward/formula_warnings.h"
#include "capture/backward/packed_args.h"
#include "capture/backward/trace_writer.h"

namespace hindcast::capture {

struct PieceOfBase;

class FormulaTracer {
 public:
  FormulaTracer(const TraceRequest& request, TraceWriter& writer, const FactExprs& facts)
      : collected_(request.collected), writer_(writer), facts_(facts) {}

  /// Returns the node's results; nullopt if the formula cannot be traced (see refusal()), in which case `inputs` are unchanged and nothing
  /// was recorded. The recorder stops a formula before its first effect on anything that it did not make itself, so calling the node
  /// afterwards is no second effect, and throws the error of a user's formula again. `warned` receives the warnings given.
  std::optional<std::vector<Traced>> run(torch::autograd::Node& node, const NodeCall& call, const std::vector<Traced>& inputs,
                                         Warnings& warned);

  /// Why the last node that could not be traced was refused.
  const std::string& refusal() const { return refusal_; }

 private:
  std::optional<std::vector<Traced>> run_program(torch::autograd::Node& node, const NodeCall& call, const std::vector<Traced>& inputs);
  ValueId saved_value(const NodeCall& call, uint32_t slot);
  void validate(torch::autograd::Node& node, const NodeCall& call, torch::autograd::variable_list& results);
  PieceOfBase piece_of(const torch::autograd::Node& node) const;
  Substitution substitution(const NodeCall& call);
  bool forget_plain_numbers(const NodeCall& call);
  at::Tensor saved_tensor(const NodeCall& call, uint32_t slot);
  std::nullopt_t refuse(torch::autograd::Node& node, const std::string& reason);

  const Collected& collected_;
  TraceWriter& writer_;
  const FactExprs& facts_;
  std::string refusal_;
};

}  // namespace hindcast::capture
