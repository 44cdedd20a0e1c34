#pragma once
// Random numbers that may be drawn a second time.
//
// A checkpoint saves the state of LibTorch's generator and reruns the function from there, in another grad mode or in a backward. The
// rerun gets another program, or none, and must draw the same numbers. Only a program itself can repeat the numbers that its kernels
// draw. So once a function draws where a rerun is possible, its programs draw from ATen's generator, as the function itself does.

#include "capture/function/random_state.h"
#include "engine/aot/aot_node.h"

namespace hindcast::engine {

/// Notes that the function of `context` draws random numbers in this call.
void note_draws(AotContext& context);

/// From now on, programs draw ATen's random numbers, not their kernels' own.
void draw_atens(AotContext& context);

/// While alive, watches whether an eager call of the function draws random numbers.
class WatchedDraws {
 public:
  WatchedDraws(AotContext& context, const std::vector<at::Tensor>& inputs);
  ~WatchedDraws();
  WatchedDraws(const WatchedDraws&) = delete;
  WatchedDraws& operator=(const WatchedDraws&) = delete;

 private:
  AotContext& context_;
  capture::RandomState before_;  // undefined: not needed
};

/// The programs for the current call: `pair`, or replacements that draw ATen's numbers. nullptr if these could not be made.
std::shared_ptr<const ProgramPair> with_numbers_for_now(AotContext& context, Specialisation& of, std::shared_ptr<const ProgramPair> pair);

}  // namespace hindcast::engine
