#include "engine/aot/drawn_again.h"

#include "base/first_line.h"
#include "base/log.h"
#include "capture/recorder/recorder.h"
#include "engine/aot/warn_once.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <exception>
#include <string>

namespace hindcast::engine {
namespace {

// A function that will be rerun is called with grad mode off, or under saved-tensor hooks; the rerun happens in a backward.
bool may_be_drawn_again() {
  return !c10::GradMode::is_enabled() || torch::autograd::get_current_graph_task_id() != -1 ||
         !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

bool draws_atens(const AotContext& context) { return context.draws_atens.load(std::memory_order_relaxed); }

}  // namespace

void note_draws(AotContext& context) {
  if (draws_atens(context) || !may_be_drawn_again()) return;
  draw_atens(context);
  HC_LOG(Aot, Info, "a function draws ATen's random numbers from now on: they may have to be drawn again");
}

void draw_atens(AotContext& context) { context.draws_atens.store(true, std::memory_order_relaxed); }

WatchedDraws::WatchedDraws(AotContext& context, const std::vector<at::Tensor>& inputs) : context_(context) {
  if (draws_atens(context) || context.options.fallback_random || capture::Recorder::current() != nullptr || !may_be_drawn_again()) return;
  before_ = capture::RandomState::of(inputs);
}

WatchedDraws::~WatchedDraws() {
  if (before_.defined() && !before_.is_same(before_.now())) note_draws(context_);
}

std::shared_ptr<const ProgramPair> with_numbers_for_now(AotContext& context, Specialisation& of, std::shared_ptr<const ProgramPair> pair) {
  if (!of.draws_random_numbers()) return pair;
  note_draws(context);
  if (!pair->draws_in_kernels || !draws_atens(context)) return pair;
  const auto whole = whole_of(pair);
  PairRequest request{context.options, of.lasting(), of.with_gradients(), whole->tangents, {}};
  request.leaves = of.leaves();
  request.has_second_order_of(whole->second_order);
  capture::Joint joint = whole->traced;
  joint.draws_atens = true;
  try {
    auto others = compile_pair(std::move(joint), request);
    of.programs().replace(*whole, others);
    return others;
  } catch (const std::exception& error) {
    of.give_up();
    note_eager("no program could be made of it: " + base::first_line(error));
    return nullptr;
  }
}

}  // namespace hindcast::engine
