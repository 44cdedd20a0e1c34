#pragma once
// One call of a compiled function.

#include "capture/recorder/libtorch_compat.h"
#include "engine/aot/aot_node.h"
#include "engine/aot/core.h"
#include "engine/aot/family.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hindcast::engine {

FunctionOutput run_eagerly(AotContext& context, const FunctionCall& call);
AotPrograms programs_of(const Halves& halves);

class AotCall {
 public:
  AotCall(std::shared_ptr<AotContext> context, const FunctionCall& call) : context_(std::move(context)), call_(call) {}

  /// By what is known of such calls. Nullopt: its program is for other sizes, of those that depend on data; nothing has happened.
  std::optional<FunctionOutput> run(const std::shared_ptr<Specialisation>& known, capture::Bindings bindings);
  /// By tracing the function, for the family to know.
  FunctionOutput trace_new(Family& family);

 private:
  std::optional<FunctionOutput> run_programs(const std::shared_ptr<Specialisation>& known, const std::shared_ptr<const Halves>& halves,
                                             capture::Bindings bindings);
  DynamicRow choose_symbols(const InputFacts& facts, const Family& family) const;
  struct Recording {
    std::unique_ptr<capture::FunctionTrace> trace;  // null: the function is no program
    FunctionOutput output;                          // without its tensors, where there is a trace
    std::string why_not;
    bool keeps_tensors = false;  // FunctionTrace's
  };
  /// Runs the function, once.
  Recording record(const capture::FunctionTrace::SizesOf& sizes, bool answers_freely);
  FunctionOutput trace_again(const std::shared_ptr<Specialisation>& known, const capture::Bindings& now);
  FunctionOutput finish_trace(const std::shared_ptr<Specialisation>& known, std::unique_ptr<capture::FunctionTrace> trace);
  std::optional<FunctionOutput> run_and_compare(const std::shared_ptr<Specialisation>& known, const std::shared_ptr<const Halves>& halves,
                                                capture::Bindings bindings);
  /// The results, with their history, to what the function returns; and its writes.
  std::vector<at::Tensor> finish(const Specialisation& known, std::vector<at::Tensor> results, const std::vector<at::Tensor>& primals,
                                 const capture::Bindings& bindings, bool is_written);
  void connect(const capture::NodePtr& node, const Specialisation& known, std::vector<at::Tensor>& results,
               const std::vector<at::Tensor>& primals) const;
  std::vector<at::Tensor> primals_of(const Specialisation& known) const;

  const std::shared_ptr<AotContext> context_;
  const FunctionCall& call_;
};

}  // namespace hindcast::engine
