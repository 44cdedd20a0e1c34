#pragma once
// One call of a function, recorded while it runs: its forward, and its backward when the first gradients arrive.
//
// There is no tracer: the recorder stays below autograd, autograd runs above it on the stand-ins, and LibTorch's engine, run over the nodes
// that autograd makes there, records the backward into the same graph. All ops run for real meanwhile, so the call gives its true results
// and has its true effects.
//
// A *primal* is a tensor that the program takes: the function's inputs in order, then what it reads from outside, in that order.
//
// The function runs once, whatever it does. If it cannot be a program, recording ends in the middle, the stand-ins become plain tensors in
// the memory of the real ones (release), and the function continues: autograd's nodes so far are the true history of its results. In the
// same way LibTorch's engine continues a backward that cannot be a program.

#include "capture/function/joint.h"
#include "capture/function/random_state.h"
#include "capture/function/whole_formulas.h"
#include "capture/recorder/recorder.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <set>
#include <stdexcept>

namespace hindcast::capture {

/// The function cannot be a program. The message says what it did.
class NotTraced : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How a tensor that the function returns is derived from what the program returns.
struct Returned {
  enum class From : uint8_t { Nothing, Result, Primal };
  From from = From::Nothing;        // Nothing: undefined
  uint32_t index = 0;               // of the result or of the primal
  std::vector<ViewStep> views;      // taken of it, in order
  bool is_itself = false;           // the primal, not a view of it
  bool with_autograd = false;       // its views are taken under autograd
  std::optional<uint32_t> same_as;  // an earlier one that is the same tensor object
};

/// A tensor that the program returns: the source of Returned, or the new contents of a tensor that the function writes to.
struct Result {
  ValueId value;
  bool is_differentiable = false;
  std::optional<uint32_t> written;  // the primal whose new contents it is
  uint32_t versions = 0;            // how many the writes add to the primal's version counter
};

/// A number that the function read from a tensor. With another number it might have taken another branch.
struct AskedNumber {
  uint32_t result;  // the result that holds it as its one element
  at::Scalar number;
};

class FunctionTrace final : private Policy {
 public:
  using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  /// Returns the sizes of input `input` as expressions of `symbols`.
  using SizesOf = std::function<std::vector<ExprId>(size_t input, SymbolTable& symbols)>;

  /// `allows_unguarded_reads`: see SymbolTable::allow_unguarded_reads(). `continues_eagerly` false: a function that cannot be a program
  /// ends with NotTraced.
  explicit FunctionTrace(const SizesOf& sizes_of = {}, bool allows_unguarded_reads = false, bool continues_eagerly = true)
      : sizes_of_(sizes_of), continues_eagerly_(continues_eagerly) {
    graph_->symbols->allow_unguarded_reads(allows_unguarded_reads);
  }
  /// Its programs must give bitwise equal results whatever is compiled: Graph::bitwise.
  void set_bitwise(bool is_bitwise) { graph_->bitwise = is_bitwise; }
  /// False: a tensor held by a dropped reference cycle of an old generation counts as kept. A full collection's time grows with the heap.
  void set_collects_all_garbage(bool collects) { collects_all_garbage_ = collects; }
  ~FunctionTrace() override = default;
  FunctionTrace(const FunctionTrace&) = delete;
  FunctionTrace& operator=(const FunctionTrace&) = delete;

  /// Runs the function on stand-ins for `inputs`, which are plain tensors or undefined. Throws what the function throws; and NotTraced,
  /// with the contents of all tensors restored, if it reads the memory of a stand-in, or may not continue unrecorded.
  void forward(const Function& function, const std::vector<at::Tensor>& inputs);
  /// Why the last forward or backward is not a program; nullopt: it is one.
  const std::optional<std::string>& refusal() const { return recorder_.refusal(); }
  /// Marks that no program can do what the function, or its backward, has done. Called while forward() runs the function, or after
  /// backward().
  void refuse(const std::string& reason) { recorder_.refuse(reason); }
  /// The reason is that the function keeps a tensor that it made: another call may be a program.
  bool keeps_tensors() const { return keeps_tensors_; }
  /// What the function returned, with its own history, if the forward is not a program.
  std::vector<at::Tensor> take_outputs() { return std::move(outputs_); }

  /// Computes the gradients of the primals from those of the differentiable results, in their order. An undefined incoming gradient stands
  /// for zeros; an undefined gradient of a primal means that it gets none. LibTorch's engine runs it on this thread. May be called again.
  /// Throws what a formula throws. `create_graph`: in grad mode.
  torch::autograd::variable_list backward(const torch::autograd::variable_list& tangents, bool create_graph = false);

  /// The same, but the program is for gradients of all results. Where `flows` is false, the result gets no gradient: `tangents` has zeros
  /// for it, which do not take part in the gradients returned. nullopt: the effect of these zeros could not be separated, or a formula has
  /// thrown or cannot be recorded. Not for traces with has_users_backward().
  std::optional<torch::autograd::variable_list> backward_for_all(const torch::autograd::variable_list& tangents,
                                                                 const std::vector<bool>& flows);

  /// True once LibTorch alone has autograd's history of the call: nothing is recorded any more.
  bool is_released() const { return recorder_.is_released(); }
  /// backward() by LibTorch's engine alone, from here on: for any tangents and any thread state. `wanted`: the primals whose gradients are
  /// computed; empty: all.
  torch::autograd::variable_list backward_as_itself(const torch::autograd::variable_list& tangents, bool create_graph,
                                                    const std::vector<bool>& wanted = {});
  /// Whether the running backward goes through nodes of this call, too, since it also began at a tensor that the function has kept. Then
  /// their edges must not be replaced.
  bool is_in_running_backward() const;
  /// Whether a backward of all results, for all primals, would run user code (custom Functions, saved-tensor hooks) that this backward does
  /// not run, since some of `tangents` are undefined, or some primals' gradients are not `wanted` (empty: all are).
  bool would_run_more_user_code(const torch::autograd::variable_list& tangents, const std::vector<bool>& wanted) const;

  /// The program of both, or of the forward alone if there was no backward.
  Joint joint() const;

  const std::vector<Result>& results() const { return results_; }
  const std::vector<Returned>& returned() const { return returned_; }
  const std::vector<AskedNumber>& numbers() const { return numbers_; }
  bool draws_random_numbers() const { return random_state_.defined(); }
  /// It calls custom Functions that were traced through: only the program contains their backward.
  bool has_formulas() const { return has_formulas_; }
  /// Whether the forward calls an operator from outside LibTorch, whose kernel is user code.
  bool calls_users_operator() const;
  /// It applied torch.func transforms, in which reading the storage offset of an argument is not detected.
  bool may_read_offsets() const { return recorder_.had_wrappers(); }
  /// Replaying its graph under autograd would give other second derivatives: it reads tensors through `.data`, or uses saved-tensor hooks.
  bool loses_history() const { return loses_history_; }
  /// It uses saved-tensor hooks. A checkpoint in it recomputes on the stand-ins.
  bool had_saved_tensor_hooks() const { return recorder_.had_saved_tensor_hooks(); }
  /// Some formula in it behaves differently in grad mode: grad_mode_formulas.h.
  bool asks_for_grad_mode() const { return asks_for_grad_mode_; }
  /// Its backward calls user code, which must run only once.
  bool has_users_backward() const { return has_users_backward_; }

  /// Differentiable results whose histories lead to the same primals.
  struct HistoryGroup {
    std::vector<uint32_t> primals, results;  // `results`: by number among the differentiable ones
  };
  struct Histories {
    std::vector<HistoryGroup> groups;   // in the order in which autograd made the last node of each
    size_t nodes = 0;                   // nodes that autograd made for these results
    bool one_leads_to_another = false;  // a result is computed from another one, and has it in its history
  };
  /// Call it before backward().
  Histories histories() const;
  /// The real tensor of a result: a new tensor without history, with the same memory and version.
  at::Tensor real_result(size_t result) const;
  /// The real inputs: the same memory, without history.
  std::vector<at::Tensor> real_inputs() const;
  /// The tensors of those forward values that autograd has saved; undefined for others.
  std::vector<at::Tensor> saved_values(const std::vector<ValueId>& values) const;
  /// A primal as it was before the function wrote to it, with its history.
  at::Tensor given(size_t primal) const;
  /// The version of that tensor's contents.
  uint32_t given_version(size_t primal) const { return primals_[primal].version; }
  /// Tensors from outside; as primals they follow the inputs.
  const std::vector<at::Tensor>& lifted() const { return lifted_; }
  size_t input_count() const { return primals_.size() - lifted_.size(); }
  /// Gradients that a backward() inside the function accumulated for inputs that are leaves.
  const std::vector<std::pair<size_t, at::Tensor>>& accumulated() const { return accumulated_; }
  /// Stand-ins that it made. One that is still held when the trace is destroyed has escaped from the function.
  Recorder::WeakStandIns take_made() { return recorder_.take_made(); }
  size_t primal_count() const { return primals_.size(); }
  bool is_leaf(size_t primal) const { return primals_[primal].is_leaf; }
  const std::shared_ptr<SymbolTable>& symbols() const { return graph_->symbols; }
  bool needs_gradient(size_t primal) const { return primals_[primal].gradient.is_valid(); }
  /// The primals whose gradients it takes itself, by grad().
  const std::set<uint32_t>& takes_gradients_of() const { return takes_gradients_of_; }

 private:
  struct Primal {
    at::Tensor stand_in;  // undefined for an undefined input
    at::Tensor real;
    ValueId value;
    torch::autograd::Edge gradient;  // where its gradient arrives; invalid if it needs none
    torch::autograd::Edge outside;   // where the gradient of the real tensor goes
    torch::autograd::Edge inner;     // as `gradient`, also if no result depends on it
    at::Tensor before;               // its contents, once it is written to
    uint32_t version = 0;
    bool is_leaf = false;
    bool required_grad = false;  // for an input, before the function ran
  };

  // Policy.
  Answer draws_random_numbers(const c10::OperatorHandle&) override;
  void has_drawn_random_numbers() override { drawn_up_to_ = drawn_up_to_.now(); }
  void was_made_of_numbers(const at::Tensor& tensor) override { made_of_numbers_.push_back(tensor); }
  Answer depends_on_data(const c10::OperatorHandle&) override;
  Answer returns_no_tensor(const c10::OperatorHandle&) override;
  void check_write(const at::Tensor& target) const override;
  void check_detach(const at::Tensor& target) const override;
  Answer writes_to_given(const c10::OperatorHandle&, const TracingTensor&) override;
  at::Tensor lift(const at::Tensor&) override;
  bool is_given(const at::Tensor&) const override;
  void told_number(ValueId, const at::Scalar&) override;
  bool begins_backward(StartedBackward& backward) override;
  void released() override;
  bool may_read_memory() override;

  void add_input(size_t number, const at::Tensor& input);
  std::vector<at::Tensor> run(const Function& function);
  void note_accumulated();
  void undo();
  void refuse_users_operator_before_a_check();
  // A checkpoint that draws random numbers also does this when it recomputes. A program would draw other numbers.
  static constexpr const char* kSetsRandomState = "it saves, seeds or restores the state of random numbers";
  bool was_random_state_set() const { return !drawn_up_to_.now().is_same(drawn_up_to_); }

  // policy.cpp
  std::optional<uint32_t> primal_of(const Base* base) const;
  const TracingTensor* traced_of(const at::Tensor& tensor) const;
  bool is_made_of_numbers(uint32_t primal) const;
  bool copy_if_made_of_numbers(uint32_t primal);
  bool is_alone_in_memory(const Primal& primal) const;
  at::Tensor known_by_its_place(const at::Tensor& outside) const;

  // traced_results.cpp
  void read_results(const std::vector<at::Tensor>& outputs);
  void read_returned(const std::vector<at::Tensor>& outputs);
  void read_writes();
  Returned from_primal(uint32_t primal, const at::Tensor& output) const;
  uint32_t add_result(const at::Tensor& stand_in);
  void cut_edges(const std::vector<at::Tensor>& outputs);

  // kept_tensors.cpp
  void find_kept(const std::vector<at::Tensor>& outputs);
  bool keeps_some(const std::vector<at::Tensor>& outputs);

  // traced_backward.cpp
  void begin_backward(bool create_graph);
  /// nullopt: a formula has read the memory of a stand-in.
  std::optional<torch::autograd::variable_list> record_backward(const torch::autograd::variable_list& tangents, bool create_graph,
                                                                const std::vector<bool>& flows);
  torch::autograd::variable_list run_engine(const torch::autograd::variable_list& tangents, bool create_graph,
                                            const std::vector<bool>& wanted = {});
  bool depends_on_tangents_alone() const;
  bool draws_in_backward() const;
  std::vector<ValueId> values_of_tangents(const torch::autograd::variable_list& tangents, torch::autograd::variable_list& stand_ins);

  // own_backwards.cpp
  std::vector<uint32_t> asked_primals(const torch::autograd::edge_list& outputs);
  const char* why_not_recorded(const StartedBackward& backward, const std::vector<uint32_t>& asked) const;
  bool leads_to_primals(const torch::autograd::edge_list& roots) const;
  void join_callers_graph();

  // eager_continuation.cpp
  void finish_eagerly(std::vector<at::Tensor> outputs, const std::vector<at::Tensor>& inputs);
  void give_back(const Primal& primal, at::Tensor input, bool is_at_another_place) const;
  void lead_kept_stand_ins_on() const;
  at::Tensor of_arguments(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                          const std::vector<bool>& is_at_another_place) const;
  void set_requires_grad(Primal& primal, const at::Tensor& input) const;
  void begin_at_arguments();
  void move_all_hooks() const;
  void bypass_call_node();
  void connect_leaves_to_arguments();
  void forget_symbols() const;
  std::vector<at::Tensor> ends_of_history() const;
  void ignore_callers_writes() const;
  void replace_in_history(const torch::autograd::Edge& former, const torch::autograd::Edge& other) const;

  const SizesOf sizes_of_;
  const bool continues_eagerly_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  Recorder recorder_{*graph_, *this};
  std::vector<Primal> primals_;
  std::vector<at::Tensor> made_of_numbers_;
  struct CopiedNumbers {
    at::Tensor tensor, stand_in;  // as the function has it
  };
  std::vector<CopiedNumbers> copied_numbers_;
  std::vector<at::Tensor> lifted_;
  std::vector<at::Tensor> result_stand_ins_;
  std::vector<Result> results_;
  std::vector<Returned> returned_;
  std::vector<AskedNumber> numbers_;
  std::vector<std::pair<ValueId, at::Scalar>> asked_;
  std::vector<ValueId> tangents_, gradients_;
  std::vector<at::Tensor> outputs_;  // of a function that is not a program
  std::vector<std::pair<size_t, at::Tensor>> accumulated_;
  bool has_formulas_ = false, has_users_backward_ = false, keeps_tensors_ = false, may_keep_some_ = false, leads_on_ = false,
       connects_leaves_ = false;
  bool collects_all_garbage_ = true;
  bool loses_history_ = false, asks_for_grad_mode_ = false, has_backward_ = false;
  int graph_task_ = -1;                              // the graph task that the function runs in
  const std::vector<at::Tensor>* inputs_ = nullptr;  // while the function runs
  std::set<uint32_t> takes_gradients_of_;
  size_t forward_end_ = 0;
  bool is_forward_ = true;
  RandomState random_state_;  // before the first draw; undefined: there was none
  RandomState drawn_up_to_;   // after the last draw, or where the forward or the backward began
  WholeFormulas whole_formulas_;
};

}  // namespace hindcast::capture
