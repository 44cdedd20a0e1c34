#include "capture/recorder/result_sizes.h"

#include "base/log.h"
#include "capture/recorder/tracing_tensor.h"

#include <algorithm>

namespace hindcast::capture {
namespace {

// The inputs of an op in the form that a shape rule takes, and every size and number in them that may be symbolic.
class SymbolicInputs {
 public:
  SymbolicInputs(const std::vector<c10::IValue>& inputs, SymbolTable& symbols) : symbols_(symbols) {
    for (const c10::IValue& input : inputs) arguments.push_back(argument(input));
  }

  std::vector<Argument> arguments;
  std::vector<ExprId> exprs;

 private:
  Argument argument(const c10::IValue& input) {
    if (input.isTensor() && input.toTensor().defined()) return Argument::tensor(note_sizes(input.toTensor()));
    if (input.isTensorList()) {
      std::vector<Sizes> list;
      for (const at::Tensor& tensor : input.toTensorVector()) list.push_back(tensor.defined() ? note_sizes(tensor) : Sizes{});
      return Argument::tensors(std::move(list));
    }
    if (input.isOptionalTensorList()) {
      std::vector<std::optional<IndexTensor>> list;
      for (const auto& item : input.toOptionalTensorVector()) {
        if (item && item->defined()) {
          list.push_back(IndexTensor{note_sizes(*item), item->scalar_type()});
        } else {
          list.emplace_back();
        }
      }
      return Argument::optional_tensors(std::move(list));
    }
    if (input.isSymInt()) exprs.push_back(symbols_.expr_of(input.toSymInt()));
    if (input.isSymIntList()) {
      for (const c10::SymInt& size : input.toSymIntVector()) exprs.push_back(symbols_.expr_of(size));
    }
    return Argument::other(input);
  }

  Sizes note_sizes(const at::Tensor& tensor) {
    Sizes sizes;
    if (const TracingTensor* traced = TracingTensor::get(tensor)) {
      for (const c10::SymInt& size : traced->traced_sizes()) sizes.push_back(symbols_.expr_of(size));
    } else {
      for (const int64_t size : tensor.sizes()) sizes.push_back(symbols_.integer(size));
    }
    exprs.insert(exprs.end(), sizes.begin(), sizes.end());
    return sizes;
  }

  SymbolTable& symbols_;
};

}  // namespace

std::vector<Sizes> result_sizes(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs,
                                const std::vector<at::Tensor>& outputs, SymbolTable& symbols) {
  std::vector<Sizes> constants;
  for (const at::Tensor& output : outputs) {
    Sizes& sizes = constants.emplace_back();
    if (!output.defined()) continue;
    for (const int64_t size : output.sizes()) sizes.push_back(symbols.integer(size));
  }
  if (outputs.empty() || symbols.int_symbols() == 0) return constants;

  const SymbolicInputs symbolic(inputs, symbols);
  const auto is_constant = [&](ExprId expr) { return symbols.is_constant(expr); };
  if (std::all_of(symbolic.exprs.begin(), symbolic.exprs.end(), is_constant)) return constants;
  std::vector<std::vector<int64_t>> real;
  for (const at::Tensor& output : outputs) real.push_back(output.defined() ? output.sizes().vec() : std::vector<int64_t>{});
  if (auto sizes = infer_sizes(op, symbolic.arguments, symbols, real); sizes && matches_hints(*sizes, symbols, real)) return *sizes;
  HC_LOG(GraphCode, Debug, "no shape rule for {}: its dynamic sizes are pinned", c10::toString(op.operator_name()));
  for (const ExprId size : symbolic.exprs) symbols.pin(size);
  return constants;
}

}  // namespace hindcast::capture
