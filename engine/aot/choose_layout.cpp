#include "engine/aot/choose_layout.h"

#include "base/first_line.h"
#include "base/log.h"
#include "codegen/kernel/backend.h"
#include "codegen/layouts/channels_last.h"
#include "codegen/partition/known_values.h"
#include "engine/aot/specialisation.h"
#include "engine/compile/background.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace hindcast::engine {
namespace {

using codegen::Measured;

// Smaller differences are measurement noise.
constexpr double kWorthwhile = 0.98;

bool saves_work(const codegen::ChannelsLast& last) { return last.last.cpu_us < kWorthwhile * last.plain.cpu_us; }

// Holds none of the user's objects: they could otherwise be destroyed on the background thread.
struct Choice {
  std::weak_ptr<Specialisation> of;
  std::weak_ptr<const ProgramPair> pair;
  AotOptions options;
  std::vector<uint32_t> lasting, with_gradients, leaves;
  pid_t process = ::getpid();

  // A forked child must not run convolutions here: the parent's OpenMP threads do not exist there, and LibTorch would wait for them.
  bool is_wanted() const { return process == ::getpid() && !of.expired() && !pair.expired(); }
  void make() const;
};

void Choice::make() const {
  const auto former = pair.lock();
  if (former == nullptr || process != ::getpid()) return;
  const capture::Joint known = codegen::with_known_values(former->traced);
  const auto rewritten = [&](Measured by) {
    return codegen::with_channels_last(known, codegen::backend_of(c10::kCPU)->cost_model(), by, process_ends);
  };
  auto last = rewritten(Measured::BySomeProcess);
  if (!last) return;
  // Measurements of other processes suffice to keep the layout, but not to change it.
  bool is_faster = saves_work(*last);
  if (is_faster) last = rewritten(Measured::ByThisProcess);
  if (!last) return;
  is_faster = is_faster && saves_work(*last) && last->last.clock_us <= last->plain.clock_us;
  HC_LOG(Aot, Info, "convolutions of a function: {:.0f} us of CPU time as they are, {:.0f} us channels-last with all copies{}",
         last->plain.cpu_us, last->last.cpu_us, is_faster ? ": they run channels-last from now on" : "");
  if (!is_faster || of.expired()) return;
  PairRequest request{options, lasting, with_gradients, former->tangents, {}};
  request.leaves = leaves;
  request.traced = &former->traced;
  request.has_second_order_of(former->second_order);
  const auto better = compile_pair(last->joint, request);
  if (const auto held = of.lock()) held->programs().replace(*former, better);
}

}  // namespace

void choose_layout(const std::shared_ptr<Specialisation>& of, const std::shared_ptr<const ProgramPair>& pair, const AotOptions& options) {
  const capture::Graph& graph = *pair->traced.graph;
  if (options.layouts == Layouts::AsGiven || !both_have_kernels(options, graph) || !codegen::has_convolutions(graph)) return;
  if (!graph.unbacked.empty()) return;  // passes do not know when unbacked symbols are bound
  // Not for inference programs. A program that computes gradients itself has no tangents, but has convolution backwards.
  if (pair->tangents.empty() && !codegen::has_backwards_of_convolutions(graph)) return;
  if (!of->may_choose_layout()) return;
  const auto choice = std::make_shared<Choice>(Choice{of, pair, options, of->lasting(), of->with_gradients(), of->leaves()});
  choice->options.tensor_names = nullptr;
  choice->options.async = false;  // it compiles on its own thread
  const auto run = [choice] {
    try {
      choice->make();
    } catch (const std::exception& error) {
      HC_LOG(Aot, Warning, "convolutions of a function stay in their layout: {}", base::first_line(error));
    }
  };
  if (!options.async) return run();
  const auto run_with_threads = [run] {
    at::init_num_threads();  // sets this thread's OpenMP thread count to the current setting
    run();
  };
  run_in_background({.run = run_with_threads, .is_wanted = [choice] { return choice->is_wanted(); }});
}

}  // namespace hindcast::engine
