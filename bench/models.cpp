// Whole models: the engine's share of a backward, from nearly all to nearly nothing.

#include "bench/harness.h"
#include "bench/suites.h"

namespace hindcast::bench {

void register_models(const Settings& settings) {
  register_model(settings, "mlp/64-128-64/b32", kPairs, [] { return mlp({64, 128, 64}, 32); });
  register_model(settings, "mlp/64-128-64/b32/zeroed", kPairs, [] { return zeroed_in_place(mlp({64, 128, 64}, 32)); });
  register_model(settings, "mlp/784-512-512-10/b128", kPairs, [] { return mlp({784, 512, 512, 10}, 128); });
  register_model(settings, "cnn/8x8/b64", kPairs, [] { return resnet(8, 1, 16, 64); });
  register_model(settings, "cnn/32x32/b16", kSlowPairs, [] { return resnet(32, 3, 16, 16); });
  register_model(settings, "cnn/norm_silu/8x64x32x32", kPairs, [] { return norm_silu({8, 64, 32, 32}, 8); });
  register_model(settings, "lstm/20x64/b32", kPairs, [] { return lstm(64, Outputs::Kept); });
  register_model(settings, "lstm/20x64/b32/written", kPairs, [] { return lstm(64, Outputs::Written); });
  register_model(settings, "gpt/explicit", kSlowPairs, [] { return gpt(Attention::Explicit); });
  register_model(settings, "gpt/fused", kSlowPairs, [] { return gpt(Attention::Fused); });
}

}  // namespace hindcast::bench
