#pragma once
// Random numbers that may be drawn a second time.
//
// A checkpoint keeps the state of LibTorch's generator and runs the function once more from there: in another grad mode, or in a backward.
// That call finds another program, or none, and must draw the same numbers. What kernels draw themselves only their own program knows. So
// a function that draws where somebody may want its numbers again draws ATen's from then on, as the function itself does.

#include "capture/function/random_state.h"
#include "engine/aot/aot_node.h"

namespace hindcast::engine {

/// The function of `context` draws random numbers in this call.
void note_draws(AotContext& context);

/// Kernels draw no random numbers of their own from now on.
void draw_atens(AotContext& context);

/// While alive, looks whether an eager call of the function draws them.
class WatchedDraws {
 public:
  WatchedDraws(AotContext& context, const std::vector<at::Tensor>& inputs);
  ~WatchedDraws();
  WatchedDraws(const WatchedDraws&) = delete;
  WatchedDraws& operator=(const WatchedDraws&) = delete;

 private:
  AotContext& context_;
  capture::RandomState before_;  // undefined: nobody asks
};

/// The programs for a call here and now: `halves`, or those that draw ATen's numbers in their place. Null: none could be made.
std::shared_ptr<const Halves> with_numbers_for_now(AotContext& context, Specialisation& of, std::shared_ptr<const Halves> halves);

}  // namespace hindcast::engine
