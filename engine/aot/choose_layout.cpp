#include "engine/aot/choose_layout.h"

#include "base/first_line.h"
#include "base/log.h"
#include "codegen/kernel/backend.h"
#include "codegen/layouts/channels_last.h"
#include "engine/aot/specialisation.h"
#include "engine/background.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace hindcast::engine {
namespace {

using codegen::Measured;

// Less is noise of the measurement.
constexpr double kWorthwhile = 0.98;

bool saves_work(const codegen::ChannelsLast& last) { return last.last.cpu_us < kWorthwhile * last.plain.cpu_us; }

// It holds nothing of the user's, whose objects would else be destroyed on the thread of the background.
struct Choice {
  std::weak_ptr<Specialisation> of;
  std::weak_ptr<const Halves> halves;
  AotOptions options;
  std::vector<uint32_t> lasting, with_gradients, leaves;
  pid_t process = ::getpid();

  // A child of a fork may have no threads for convolutions: what the parent had of OpenMP's is gone, and LibTorch would wait for them.
  bool is_wanted() const { return process == ::getpid() && !of.expired() && !halves.expired(); }
  void make() const;
};

void Choice::make() const {
  const auto former = halves.lock();
  if (former == nullptr || process != ::getpid()) return;
  const auto rewritten = [&](Measured by) {
    return codegen::with_channels_last(former->traced, codegen::backend_of(c10::kCPU)->cost_model(), by, process_ends);
  };
  auto last = rewritten(Measured::BySomeProcess);
  if (!last) return;
  // What others measured is enough to leave all as it is, and not enough to change it.
  bool is_faster = saves_work(*last);
  if (is_faster) last = rewritten(Measured::ByThisProcess);
  if (!last) return;
  is_faster = is_faster && saves_work(*last) && last->last.clock_us <= last->plain.clock_us;
  HC_LOG(Aot, Info, "convolutions of a function: {:.0f} us of CPU time as they are, {:.0f} us channels-last with all copies{}",
         last->plain.cpu_us, last->last.cpu_us, is_faster ? ": they work so from now on" : "");
  if (!is_faster || of.expired()) return;
  HalvesRequest request{options, lasting, with_gradients, former->tangents, {}};
  request.leaves = leaves;
  request.traced = &former->traced;
  request.has_second_order_of(former->second_order);
  const auto better = make_halves(last->joint, request);
  if (const auto held = of.lock()) held->replace(*former, better);
}

}  // namespace

void choose_layout(const std::shared_ptr<Specialisation>& of, const std::shared_ptr<const Halves>& halves, const AotOptions& options) {
  const capture::Graph& graph = *halves->traced.graph;
  if (options.layouts == Layouts::AsGiven || !both_have_kernels(options, graph) || !codegen::has_convolutions(graph)) return;
  if (!graph.unbacked.empty()) return;  // a pass over the program knows nothing of when their symbols are bound
  // Inference programs are left alone. A program that computes gradients itself has no tangents, but convolutions backward.
  if (halves->tangents.empty() && !codegen::has_backwards_of_convolutions(graph)) return;
  if (!of->may_choose_layout()) return;
  const auto choice = std::make_shared<Choice>(Choice{of, halves, options, of->lasting(), of->with_gradients(), of->leaves()});
  choice->options.tensor_names = nullptr;
  choice->options.async = false;  // it compiles where it is
  const auto run = [choice] {
    try {
      choice->make();
    } catch (const std::exception& error) {
      HC_LOG(Aot, Warning, "convolutions of a function stay in their layout: {}", base::first_line(error));
    }
  };
  if (!options.async) return run();
  const auto run_with_threads = [run] {
    at::init_num_threads();  // a thread keeps the number that it began with: the program may have set another since
    run();
  };
  run_in_background({.run = run_with_threads, .is_wanted = [choice] { return choice->is_wanted(); }});
}

}  // namespace hindcast::engine
