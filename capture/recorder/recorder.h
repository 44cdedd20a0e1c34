#pragma once
// Records every ATen call of a formula, below autograd, into the graph.
//
// How: a boxed fallback on a dispatch key that LibTorch leaves free. TracingTensors carry the key and the thread includes it (so that
// factories are seen). Composite ops are left to decompose; every other op runs for real on the real tensors and becomes one instr.
//
// Formulas write in place and through views. A write becomes a Mutate instr (copy, then write the copy) that makes a new value of the base;
// views taken before are derived again (writes.cpp).
//
// One formula is a transaction: begin(), the calls, then refusal() says whether all of them were recorded; rollback() drops their instrs.
// The policy decides on what an instr cannot represent, or it is refused, before the op runs.
//
// After a refusal the formula ends with an exception; or, if it must not run a second time, it continues unrecorded
// (set_continues_eagerly): all stand-ins become plain tensors, and ops run as if there were no recorder.

#include "capture/recorder/op_traits.h"
#include "capture/recorder/policy.h"
#include "capture/recorder/tracing_tensor.h"
#include "capture/shape_rules/shape_rules.h"
#include "hindcast/graph.h"

#include <c10/util/FunctionRef.h>

#include <unordered_map>

namespace torch::autograd {
struct Node;
}

namespace hindcast::capture {

struct HiddenWrite;

/// True if the recorder has a dispatch key of its own in this process. The first call installs the fallback.
bool recorder_available();

class Recorder {
 public:
  Recorder(Graph& graph, Policy& policy);

  /// Where autograd is during the recording: a formula computes below it; a function has it active above the recorder.
  enum class Autograd : uint8_t { Below, Above };

  /// While alive, ATen calls of this thread are recorded.
  class Scope {
   public:
    explicit Scope(Recorder& recorder, Autograd autograd = Autograd::Below);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct Guards;
    std::unique_ptr<Guards> guards_;
    Recorder* previous_;
  };

  /// The recorder of this thread; nullptr inside an op that runs for real.
  static Recorder* current();

  /// A stand-in for a real tensor that is value `id` of the graph. Not `fresh`: the formula may not write to it.
  at::Tensor stand_in(at::Tensor real, ValueId id);
  /// From now on its strides are those that it has now: all sizes that they depend on are pinned.
  void pin_strides_of(const TracingTensor& tensor);
  /// The strides of a view that is not dense, in terms of the sizes of what it views. Empty if they are not known in these terms.
  std::vector<c10::SymInt> strides_by_base(const TracingTensor& tensor);
  /// A new value of the graph with the metadata of `real`; sizes are constants unless given.
  ValueId new_value(const at::Tensor& real, std::vector<ExprId> sizes);
  ValueId new_value(const at::Tensor& real);
  ValueId undefined_value();

  /// Returns the tensor; for a tensor from outside that has a stand-in, the stand-in.
  at::Tensor lifted(const at::Tensor& tensor);
  /// Stand-ins that the recorder made, to see later which are still held. Only if tensors are lifted.
  using WeakStandIns = std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>>;
  WeakStandIns take_made() { return std::move(made_); }
  /// The stand-ins that are still held.
  std::vector<at::Tensor> held() const;
  void note_copy(const c10::intrusive_ptr<TracingTensor>& copy);
  template <class Visit>
  void for_each_lifted(Visit visit) const {
    for (const Lifted& each : lifted_) visit(each.stand_in);
  }
  /// Calls `work` without recording it.
  static void unrecorded(c10::function_ref<void()> work);

  /// Records a copy of the stand-in's value. From here on the stand-in stands for that copy, and the formula may write to it.
  void become_copy(const at::Tensor& stand_in);

  /// The value of a stand-in now (derived again if its base was written), undefined for an undefined tensor. A real tensor that is no
  /// stand-in becomes a constant if it is 0-dim, otherwise the policy may lift it.
  ValueId value_of(const at::Tensor& tensor);

  /// `known` stands in for a tensor from before, which holds what the formula has computed as `computed`: a program may read it instead.
  void note_known(const at::Tensor& computed, const at::Tensor& known);
  /// The pairs that note_known() was given: computed, known.
  const std::vector<std::pair<ValueId, ValueId>>& known_values() const { return known_values_; }

  /// Instrs from here on belong to node `call`.
  void begin(uint32_t call);
  /// Undoes derive_again() since begin(). Call it after dropping the instrs since then.
  void forget_derived();
  /// Drops the instrs since begin(). Their effects on real tensors stay, but affect only tensors that they made.
  void rollback();
  /// Stops recording before the next op. The first reason is kept.
  void refuse(std::string reason);
  /// The same, at once, for something that is not an op: throws std::runtime_error with the refusal.
  void refuse_now(std::string reason);
  /// See SymbolTable::Looking.
  bool is_looked_at() const { return graph_.symbols->is_looked_at(); }
  /// A torch.func transform is active, or has been. Its wrappers pass storage offsets along as numbers, even where they hide them.
  bool has_wrappers();
  /// An op read a tensor through `.data`, or ran under saved-tensor hooks. Replaying the graph under autograd would give its values another
  /// history.
  bool lost_history() const { return lost_history_ || had_saved_tensor_hooks_; }
  bool had_saved_tensor_hooks() const { return had_saved_tensor_hooks_; }
  /// An op has thrown. What the formula does after that depends on arguments that no guard checks.
  bool has_thrown() const { return has_thrown_; }
  /// has_wrappers() was asked while a transform was active.
  bool had_wrappers() const { return has_wrappers_; }
  /// No size is a symbol.
  bool has_plain_sizes() const { return graph_.symbols->int_symbols() == 0; }
  /// See Policy::begins_backward().
  bool begins_backward(StartedBackward& backward) { return policy_.begins_backward(backward); }
  /// The tensor is about to be detached in place. Views of it keep the history that it had.
  void begins_detach(const at::Tensor& tensor);
  /// See Policy::is_given().
  bool is_given(const at::Tensor& tensor) const { return policy_.is_given(tensor); }
  /// Why the formula was not recorded; nullopt: it was.
  const std::optional<std::string>& refusal() const { return refusal_; }

  /// The formula is user code, which may reach tensors that no node collected and may ask for storage offsets.
  void set_user_formula(bool is_users) { user_formula_ = is_users; }
  /// The policy lifts tensors from outside, 0-dim ones too.
  void set_lifts(bool lifts);
  /// Origin of the ops that are recorded in no-grad mode.
  void set_origin_without_gradients(uint32_t origin) { origin_without_gradients_ = origin; }
  /// Whether the formula continues unrecorded after a refusal. Only if tensors are lifted.
  void set_continues_eagerly(bool continues) { continues_eagerly_ = continues; }
  /// Ends the recording: all stand-ins become plain tensors.
  void release();
  bool is_released() const { return is_released_; }
  void is_asked_for_memory();

  /// From now on the backward is recorded for all results. Zeros stand in for gradients that are absent. Values that are computed from the
  /// other gradients are those that they would be without these zeros (absent_gradients.cpp).
  void begin_with_absent_gradients();
  static void mark_gradient(const at::Tensor& stand_in, bool is_absent);
  static bool is_absent(const at::Tensor& gradient);
  /// The effect of the zeros could not be separated: an operator other than a sum has read values that depend on absent gradients and
  /// values that depend on others, or random numbers were drawn.
  bool has_mixed_gradients() const { return has_mixed_gradients_; }

  /// One ATen call: takes the arguments from `stack` and leaves stand-ins for the results there.
  /// Throws std::runtime_error with the refusal, and what the op throws.
  void record(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  /// The same in a dispatch mode that the function has opened. What the mode does cannot be recorded: the recording ends where such a mode
  /// computes with stand-ins, or makes a tensor with data.
  void record_in_mode(const c10::OperatorHandle& op, torch::jit::Stack* stack);

 private:
  // Calls visit(op, args) for each view from the tensor to the value that has the memory, and returns that value.
  template <class Visit>
  ValueId walk_views(const TracingTensor& tensor, Visit visit) const;
  size_t count_contiguous_views(const TracingTensor& tensor) const;
  std::vector<int64_t> hints_of(c10::ArrayRef<ExprId> sizes) const;
  struct Written {
    TracingTensor* target = nullptr;
    uint32_t arg = 0;
  };
  // While alive, nothing is recorded on this thread.
  class Pause;

  Instr& new_instr(const c10::OperatorHandle& op, std::vector<Arg> args, InstrKind kind = InstrKind::Op);
  uint32_t number_of_formula();
  Arg make_arg(const c10::IValue& value);
  bool is_constant(const Arg& arg) const;
  void refuse(const c10::OperatorHandle& op, const char* reason);

  // The steps of record().
  bool has_views(const at::Tensor& tensor) const;
  void put_in_numbers(std::vector<c10::IValue>& inputs);
  void fill_placeholders();
  bool record_by_numbers(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, torch::jit::Stack* stack);
  std::vector<at::Tensor> numbers_of(const at::Tensor& mask);
  void forget_dropped_masks();
  std::vector<Sizes> sizes_of_results(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs,
                                      const std::vector<at::Tensor>& outputs, std::optional<std::pair<size_t, size_t>>& by_data) const;
  void record_view_in_place(const c10::OperatorHandle& op, const c10::OperatorHandle& view, torch::jit::Stack* stack);
  void record_hidden_write(const HiddenWrite& hidden, std::vector<c10::IValue> inputs, torch::jit::Stack& stack);
  void lift_all(std::vector<c10::IValue>& inputs);
  const at::Tensor& given_back(const at::Tensor& stand_in) const;
  void check_settings();
  void check_traits(const c10::OperatorHandle& op, const OpTraits& traits, const std::vector<c10::IValue>& inputs);
  void check_storage(const c10::OperatorHandle& op, const OpTraits& traits, const std::vector<c10::IValue>& inputs);
  void note_lost_history(const std::vector<c10::IValue>& inputs);
  void note_results(const std::vector<at::Tensor>& results);
  void tell_answer(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, const c10::IValue& answer);
  bool have_same_sizes(const at::Tensor& a, const at::Tensor& b) const;
  bool have_layouts(const std::vector<at::Tensor>& outputs);
  void call_itself(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  Answer answer_to(OpTrait trait, const c10::OperatorHandle& op);
  Written find_written(const c10::OperatorHandle& op, const OpTraits& traits, const std::vector<c10::IValue>& inputs);
  void check_autograd(const c10::OperatorHandle& op);
  Gradients note_gradients(const c10::OperatorHandle& op, const OpTraits& traits, const std::vector<c10::IValue>& inputs,
                           const std::vector<at::Tensor>& outputs);
  static void mark_gradients(const std::vector<at::Tensor>& stand_ins, Gradients gradients);
  torch::jit::Stack call_real(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs);
  std::vector<at::Tensor> record_write(const c10::OperatorHandle& op, std::vector<Arg> args, Written written,
                                       const std::vector<c10::IValue>& inputs, const std::vector<at::Tensor>& outputs);
  std::vector<at::Tensor> record_op(const c10::OperatorHandle& op, const std::vector<Arg>& args, const std::vector<c10::IValue>& inputs,
                                    const std::vector<at::Tensor>& outputs);
  at::Tensor wrap_output(at::Tensor real, ValueId id, const c10::OperatorHandle& op, const std::vector<Arg>& args,
                         const std::vector<c10::IValue>& inputs, uint32_t output);

  // Writes.
  void add_mutation(const c10::OperatorHandle& op, std::vector<Arg> args, Written written);
  void derive_again(TracingTensor& view);
  struct Derived {
    c10::weak_intrusive_ptr<c10::TensorImpl> view;
    ValueId before;
    uint32_t version;
  };
  ValueId value_from_outside(const at::Tensor& tensor);
  bool is_number(const at::Tensor& tensor) const;

  Graph& graph_;
  Policy& policy_;
  uint32_t call_ = 0;
  std::optional<uint32_t> origin_without_gradients_;
  const torch::autograd::Node* formula_ = nullptr;  // of the last instr; only compared
  uint32_t formulas_ = 0;
  size_t first_instr_ = 0;
  uint64_t settings_ = 0;  // operator settings when set_lifts(true) was called
  std::optional<std::string> refusal_;
  SeenOfAutograd seen_;  // of the op that is recorded
  bool user_formula_ = false, lifts_ = false, continues_eagerly_ = false, is_released_ = false, has_wrappers_ = false,
       lost_history_ = false, had_saved_tensor_hooks_ = false, has_thrown_ = false, has_absent_gradients_ = false,
       has_mixed_gradients_ = false;
  const uint64_t number_;
  WeakStandIns made_;
  struct NumbersOfMask {
    std::vector<at::Tensor> real;  // by dimension of the mask
    std::vector<ValueId> values;
    size_t end = 0;  // number of instrs up to those that made them
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> placeholders_;   // PyTorch's, of symbolic numbers, and the numbers
  std::unordered_map<uint32_t, NumbersOfMask> numbers_of_masks_;  // by value of the mask
  std::vector<std::pair<ValueId, ValueId>> known_values_;
  std::vector<Derived> derived_;  // since begin(), where a backward may be recorded again
  struct Lifted {
    at::Tensor outside, stand_in;
  };
  std::vector<Lifted> lifted_;
  std::unordered_map<const c10::TensorImpl*, uint32_t> lifted_of_;  // by the tensor outside
};

}  // namespace hindcast::capture
