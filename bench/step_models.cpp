#include "bench/step_models.h"

namespace hindcast::bench {

std::vector<StepModel> step_models() {
  std::vector<StepModel> models = {
      {"ppo/8-64-64-2/b64", [] { return whole_step(ppo(8, 64, 2, 64)); }, 0.5, ppo_by_hand},
      {"lstm/20x64/b32", [] { return whole_step(lstm(64, Outputs::Kept)); }, 1.0, lstm_by_hand},
  };
  for (const AotModel& model : aot_models()) {
    const bool is_by_hand = model.name == "mlp/64-128-64/b32";
    models.push_back({model.name, model.build, 1.0, is_by_hand ? mlp_by_hand : nullptr});
  }
  return models;
}

}  // namespace hindcast::bench
