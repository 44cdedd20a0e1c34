#pragma once
// One call of a compiled function.

#include "capture/recorder/libtorch_compat.h"
#include "engine/aot/aot_node.h"
#include "engine/aot/family.h"
#include "hindcast/detail/aot_core.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hindcast::engine {

detail::FunctionOutput run_eagerly(AotContext& context, const detail::FunctionCall& call);
detail::AotPrograms programs_of(const ProgramPair& pair);

class AotCall {
 public:
  AotCall(std::shared_ptr<AotContext> context, const detail::FunctionCall& call) : context_(std::move(context)), call_(call) {}

  /// Runs the call with `known`, the specialisation that it matches. Returns nullopt, before any effect, if the program does not hold for
  /// a size that depends on data.
  std::optional<detail::FunctionOutput> run(const std::shared_ptr<Specialisation>& known, capture::Bindings bindings);
  /// Traces the function, and adds the specialisation to `family`.
  detail::FunctionOutput trace_new(Family& family);

 private:
  /// For the results of a program.
  void add_node(const std::shared_ptr<Specialisation>& known, const std::shared_ptr<const ProgramPair>& pair,
                const capture::Bindings& bindings, detail::Gain gain, const std::vector<at::Tensor>& primals,
                const std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& results);
  std::optional<detail::FunctionOutput> run_programs(const std::shared_ptr<Specialisation>& known,
                                                     const std::shared_ptr<const ProgramPair>& pair, capture::Bindings bindings);
  DynamicRow choose_symbols(const InputFacts& facts, const Family& family) const;
  struct Recording {
    std::unique_ptr<capture::FunctionTrace> trace;  // nullptr: the function cannot be a program
    detail::FunctionOutput output;                  // without its tensors if there is a trace
    std::string why_not;
    bool keeps_tensors = false;  // FunctionTrace::keeps_tensors()
    bool has_no_second_derivatives = false;
  };
  /// Runs the function once, tracing it.
  Recording record(const capture::FunctionTrace::SizesOf& sizes, bool allows_unguarded_reads);
  detail::FunctionOutput trace_again(const std::shared_ptr<Specialisation>& known, const capture::Bindings& now);
  detail::FunctionOutput finish_trace(const std::shared_ptr<Specialisation>& known, std::unique_ptr<capture::FunctionTrace> trace);
  std::optional<detail::FunctionOutput> run_and_compare(const std::shared_ptr<Specialisation>& known,
                                                        const std::shared_ptr<const ProgramPair>& pair, capture::Bindings bindings);
  /// Performs the function's writes, and turns the results, with their history, into what the function returns.
  std::vector<at::Tensor> finish(const Specialisation& known, std::vector<at::Tensor> results, const std::vector<at::Tensor>& primals,
                                 const capture::Bindings& bindings, bool is_written);
  void connect(const capture::NodePtr& node, const Specialisation& known, std::vector<at::Tensor>& results,
               const std::vector<at::Tensor>& primals, const capture::FunctionTrace::HistoryGroup* group = nullptr) const;
  void learn_alone(const std::shared_ptr<Specialisation>& known, std::unique_ptr<capture::FunctionTrace> trace) const;
  std::vector<at::Tensor> primals_of(const Specialisation& known) const;

  const std::shared_ptr<AotContext> context_;
  const detail::FunctionCall& call_;
};

}  // namespace hindcast::engine
