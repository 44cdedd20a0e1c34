#include "engine/aot/choose_layout.h"

#include "base/log.h"
#include "codegen/layouts/channels_last.h"
#include "engine/aot/specialisation.h"
#include "engine/background.h"

#include <ATen/Parallel.h>

#include <exception>
#include <utility>

namespace hindcast::engine {
namespace {

// Less is noise of the measurement.
constexpr double kWorthwhile = 0.95;

void choose(Specialisation& of, const Halves& halves, AotOptions options) {
  const auto last = codegen::with_channels_last(halves.traced, options.layouts == Layouts::Fastest);
  if (!last) return;
  const bool is_faster = last->last_us < kWorthwhile * last->plain_us;
  HC_LOG(Aot, Info, "convolutions of a function: {:.0f} us as they are, {:.0f} us channels-last with all copies{}", last->plain_us,
         last->last_us, is_faster ? ": they work so from now on" : "");
  if (!is_faster || of.is_dropped()) return;
  options.async = false;
  HalvesRequest request{options, of.lasting(), of.with_gradients(), nullptr, {}};
  request.tangent_facts = &halves.tangents;
  request.leaves = of.leaves();
  request.traced = &halves.traced;
  of.replace(halves, make_halves(last->joint, request));
}

}  // namespace

void choose_layout(const std::shared_ptr<Specialisation>& of, const std::shared_ptr<const Halves>& halves, const AotOptions& options) {
  if (options.layouts == Layouts::AsGiven || halves->backward == nullptr || !both_have_kernels(options)) return;
  if (!codegen::has_convolutions(*halves->traced.graph)) return;
  if (!of->may_choose_layout()) return;
  const auto run = [weak = std::weak_ptr(of), halves, options, threads = at::get_num_threads()] {
    const auto held = weak.lock();
    if (held == nullptr) return;
    if (at::get_num_threads() != threads) at::set_num_threads(threads);  // a thread keeps the number that it began with
    try {
      choose(*held, *halves, options);
    } catch (const std::exception& error) {
      HC_LOG(Aot, Warning, "convolutions of a function stay in their layout: {}", error.what());
    }
  };
  if (!options.async) return run();
  run_in_background({.run = run, .is_wanted = [weak = std::weak_ptr(of)] { return !weak.expired(); }});
}

}  // namespace hindcast::engine
