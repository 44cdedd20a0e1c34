#include "codegen/plan/op_call.h"

#include "hindcast/detail/footprint.h"
#include "capture/graph/users_op.h"
#include "codegen/plan/unboxed_call.h"
#include "codegen/plan/view_call.h"

#include <ATen/ops/empty_strided.h>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Env;
using torch::jit::Stack;

c10::IValue argument(const StepArg& arg, Slots& slots, const Env& env) {
  switch (arg.kind) {
    case Arg::Kind::Constant:
      return arg.constant;
    case Arg::Kind::Value:
      return take(slots, arg.slots[0]);
    case Arg::Kind::ValueList: {
      c10::List<at::Tensor> list;
      list.reserve(arg.slots.size());
      for (const SlotUse use : arg.slots) list.push_back(take(slots, use));
      return list;
    }
    case Arg::Kind::OptionalValueList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const SlotUse use : arg.slots) list.push_back(use.slot == kNoSlot ? std::nullopt : std::optional(take(slots, use)));
      return list;
    }
    case Arg::Kind::Int:
      return env.integer(arg.exprs[0]);
    case Arg::Kind::IntList: {
      std::vector<int64_t> list;
      list.reserve(arg.exprs.size());
      for (const auto expr : arg.exprs) list.push_back(env.integer(expr));
      return list;
    }
    case Arg::Kind::Float:
      return env.real(arg.exprs[0]);
  }
  return {};
}

// This thread's stack, emptied at the end, also when an op throws. Uses do not nest: ATen ops here run below autograd and do not call back
// into hindcast. A user's op may, so it gets a stack of its own.
class ThreadStack {
 public:
  explicit ThreadStack(const Step& step) : stack_(step.seen.is_noted ? own_ : of_thread_) {}
  ~ThreadStack() { stack_.clear(); }
  ThreadStack(const ThreadStack&) = delete;
  ThreadStack& operator=(const ThreadStack&) = delete;
  Stack& operator*() { return stack_; }

 private:
  static inline thread_local Stack of_thread_;
  Stack own_;
  Stack& stack_;
};

void put(at::Tensor result, size_t output, const Step& step, Slots& slots) {
  if (output < step.outputs.size() && step.outputs[output] != kNoSlot) slots[step.outputs[output]] = std::move(result);
}

class BoxedCall final : public OpCall {
 public:
  explicit BoxedCall(std::vector<capture::Value> results) : results_(std::move(results)) {}

  void run(const Step& step, Slots& slots, const Env& env) const override {
    ThreadStack scope(step);
    Stack& stack = *scope;
    for (const StepArg& arg : step.args) stack.push_back(argument(arg, slots, env));
    capture::call_as_seen(*step.op, step.seen, stack);
    if (step.seen.is_noted) capture::expect_results(*step.op, stack, results_, env);
    size_t output = 0;
    for (c10::IValue& result : stack) {
      if (result.isTensor()) {
        put(std::move(result).toTensor(), output++, step, slots);
      } else {
        for (at::Tensor& tensor : result.toTensorVector()) put(std::move(tensor), output++, step, slots);
      }
    }
  }
  size_t footprint() const override {
    size_t bytes = OpCall::footprint() + base::footprint(results_);
    for (const capture::Value& result : results_) bytes += base::footprint(result.sizes) + base::footprint(result.strides);
    return bytes;
  }

 private:
  const std::vector<capture::Value> results_;
};

// Copies the base (or takes it, if it has no other owner), applies the views and writes to the last one.
class MutateCall final : public OpCall {
 public:
  void run(const Step& step, Slots& slots, const Env& env) const override {
    at::Tensor copy = take(slots, step.base);
    const bool ours = step.base.last && copy.use_count() == 1 && copy.has_storage() && copy.storage().use_count() == 1;
    if (!ours) copy = at::empty_strided(copy.sizes(), copy.strides(), copy.options()).copy_(copy);
    at::Tensor target = copy;
    ThreadStack scope(step);
    Stack& stack = *scope;
    for (const PlannedView& view : step.views) {
      for (size_t i = 0; i < view.args.size(); ++i)
        stack.push_back(i == view.self_arg ? c10::IValue(target) : argument(view.args[i], slots, env));
      view.op.callBoxed(stack);
      target = stack[0].isTensorList() ? stack[0].toTensorVector()[view.output] : stack[view.output].toTensor();
      stack.clear();
    }
    for (size_t i = 0; i < step.args.size(); ++i)
      stack.push_back(i == step.target_arg ? c10::IValue(target) : argument(step.args[i], slots, env));
    capture::call_as_seen(*step.op, step.seen, stack);
    put(std::move(copy), 0, step, slots);
  }
};

}  // namespace

std::unique_ptr<const OpCall> make_op_call(const Step& step, std::vector<capture::Value> results) {
  if (step.kind == capture::InstrKind::Mutate) return std::make_unique<MutateCall>();
  if (step.seen.is_noted) return std::make_unique<BoxedCall>(std::move(results));
  auto call = make_unboxed_call(step);
  if (!call) call = std::make_unique<BoxedCall>(std::vector<capture::Value>());
  if (auto view = make_view_call(step, call)) return view;
  return call;
}

}  // namespace hindcast::codegen
