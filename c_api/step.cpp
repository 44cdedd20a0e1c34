#include "base/fork.h"
#include "base/json.h"
#include "c_api/boundary.h"
#include "c_api/handles.h"
#include "c_api/optimizers.h"
#include "c_api/structs.h"
#include "c_api/tensors.h"
#include "c_api/versions.h"
#include "hindcast/compiled_step.h"

#include <torch/optim.h>
#include <torch/serialize.h>

namespace hindcast::c_api {
namespace {

struct Step {
  Step(const hindcast_optimizer& as, std::vector<at::Tensor> parameters)
      : kind(as.kind), optimizer(make_optimizer(as, std::move(parameters))), run(compiled_step(*optimizer, clip_of(as))) {}

  const int32_t kind;
  const std::unique_ptr<torch::optim::Optimizer> optimizer;
  CompiledStep run;
};

Handles<Step>& steps() {
  static constinit base::MadeOnce<Handles<Step>> steps;
  return steps.get("step");
}

std::string stats_of(const Step& step) {
  const CompiledStep::Counts& counts = step.run.counts();
  return base::JsonObject()
      .add("compiled", counts.compiled)
      .add("original", counts.original)
      .add("why_original", counts.why_original)
      .str();
}

}  // namespace
}  // namespace hindcast::c_api

using namespace hindcast::c_api;

extern "C" {

int32_t hindcast_optimizer_init(hindcast_optimizer* optimizer, uint64_t size, int32_t kind) {
  return at_boundary("hindcast_optimizer_init", [&] { init_struct(optimizer, size, defaults_of(kind)); });
}

int32_t hindcast_step_create(const hindcast_optimizer* optimizer, void* const* parameters, uint64_t count, uint64_t* step) {
  if (step != nullptr) *step = 0;
  return at_boundary("hindcast_step_create", [&] {
    require(step != nullptr, "`step`, where the handle would go, is NULL");
    check_libtorch();
    *step = steps().add(std::make_shared<Step>(read_optimizer(optimizer), tensors_at(parameters, count, "parameter")));
  });
}

int32_t hindcast_step_add_parameters(uint64_t step, const hindcast_optimizer* optimizer, void* const* parameters, uint64_t count) {
  return at_boundary("hindcast_step_add_parameters", [&] {
    const std::shared_ptr<Step> found = steps().at(step);
    const hindcast_optimizer as = read_optimizer(optimizer);
    require(as.kind == found->kind,
            "the optimizer's kind is " + std::to_string(as.kind) + ", and the step's is " + std::to_string(found->kind));
    add_group(*found->optimizer, as, tensors_at(parameters, count, "parameter"));
  });
}

int32_t hindcast_step_run(uint64_t step) {
  return at_boundary("hindcast_step_run", [&] { steps().at(step)->run(); });
}

int32_t hindcast_step_zero_grad(uint64_t step) {
  return at_boundary("hindcast_step_zero_grad", [&] { steps().at(step)->optimizer->zero_grad(); });
}

int32_t hindcast_step_set_learning_rate(uint64_t step, double lr) {
  return at_boundary("hindcast_step_set_learning_rate", [&] {
    require(lr >= 0, "the learning rate is " + std::to_string(lr));
    for (auto& group : steps().at(step)->optimizer->param_groups()) group.options().set_lr(lr);
  });
}

int32_t hindcast_step_grad_norm(uint64_t step, double* norm) {
  if (norm != nullptr) *norm = 0;
  return at_boundary("hindcast_step_grad_norm", [&] {
    require(norm != nullptr, "`norm`, where it would go, is NULL");
    *norm = steps().at(step)->run.grad_norm();
  });
}

int32_t hindcast_step_stats_json(uint64_t step, char** text) {
  if (text != nullptr) *text = nullptr;
  return at_boundary("hindcast_step_stats_json", [&] {
    require(text != nullptr, "`text`, where it would go, is NULL");
    *text = new_text(stats_of(*steps().at(step)));
  });
}

int32_t hindcast_step_save(uint64_t step, const char* path) {
  return at_boundary("hindcast_step_save", [&] {
    require(path != nullptr, "`path` is NULL");
    torch::save(*steps().at(step)->optimizer, path);
  });
}

int32_t hindcast_step_load(uint64_t step, const char* path) {
  return at_boundary("hindcast_step_load", [&] {
    require(path != nullptr, "`path` is NULL");
    torch::load(*steps().at(step)->optimizer, path);
  });
}

int32_t hindcast_step_destroy(uint64_t step) {
  return at_boundary("hindcast_step_destroy", [&] { steps().take(step); });
}
}
