#include "c_api/optimizers.h"

#include "c_api/structs.h"

#include <c10/util/Exception.h>
#include <torch/optim.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace hindcast::c_api {
namespace {

using namespace torch::optim;

constexpr double kSgdLearningRate = 1e-3;  // torch::optim has no default

// For each kind: from the struct's fields to torch::optim's options, and back for the defaults.
SGDOptions options_of(const hindcast_optimizer& as, SGDOptions options) {
  return options.momentum(as.momentum).dampening(as.dampening).weight_decay(as.weight_decay).nesterov(as.nesterov != 0);
}
template <class AdamLike>
AdamLike adam_options(const hindcast_optimizer& as, AdamLike options) {
  return options.betas({as.beta1, as.beta2}).eps(as.eps).weight_decay(as.weight_decay).amsgrad(as.amsgrad != 0);
}
AdamOptions options_of(const hindcast_optimizer& as, AdamOptions options) { return adam_options(as, std::move(options)); }
AdamWOptions options_of(const hindcast_optimizer& as, AdamWOptions options) { return adam_options(as, std::move(options)); }
RMSpropOptions options_of(const hindcast_optimizer& as, RMSpropOptions options) {
  return options.alpha(as.alpha).eps(as.eps).weight_decay(as.weight_decay).momentum(as.momentum).centered(as.centered != 0);
}
AdagradOptions options_of(const hindcast_optimizer& as, AdagradOptions options) {
  return options.lr_decay(as.lr_decay).weight_decay(as.weight_decay).initial_accumulator_value(as.initial_accumulator_value).eps(as.eps);
}

void set_defaults(hindcast_optimizer& to, const SGDOptions& from) {
  to.momentum = from.momentum();
  to.dampening = from.dampening();
  to.weight_decay = from.weight_decay();
  to.nesterov = from.nesterov();
}
template <class AdamLike>
void set_adam_defaults(hindcast_optimizer& to, const AdamLike& from) {
  to.beta1 = std::get<0>(from.betas());
  to.beta2 = std::get<1>(from.betas());
  to.eps = from.eps();
  to.weight_decay = from.weight_decay();
  to.amsgrad = from.amsgrad();
}
void set_defaults(hindcast_optimizer& to, const AdamOptions& from) { set_adam_defaults(to, from); }
void set_defaults(hindcast_optimizer& to, const AdamWOptions& from) { set_adam_defaults(to, from); }
void set_defaults(hindcast_optimizer& to, const RMSpropOptions& from) {
  to.alpha = from.alpha();
  to.eps = from.eps();
  to.weight_decay = from.weight_decay();
  to.momentum = from.momentum();
  to.centered = from.centered();
}
void set_defaults(hindcast_optimizer& to, const AdagradOptions& from) {
  to.lr_decay = from.lr_decay();
  to.weight_decay = from.weight_decay();
  to.initial_accumulator_value = from.initial_accumulator_value();
  to.eps = from.eps();
}

template <class Optimizer, class Options>
struct Kind {
  using OptimizerClass = Optimizer;
  using OptionsClass = Options;
};

// Calls `f` with the classes of a kind.
template <class F>
auto with_kind(int32_t kind, const F& f) {
  switch (kind) {
    case HINDCAST_SGD:
      return f(Kind<SGD, SGDOptions>());
    case HINDCAST_ADAM:
      return f(Kind<Adam, AdamOptions>());
    case HINDCAST_ADAMW:
      return f(Kind<AdamW, AdamWOptions>());
    case HINDCAST_RMSPROP:
      return f(Kind<RMSprop, RMSpropOptions>());
    case HINDCAST_ADAGRAD:
      return f(Kind<Adagrad, AdagradOptions>());
    default:
      break;
  }
  throw std::invalid_argument("the optimizer's kind is " + std::to_string(kind) + "; expected HINDCAST_SGD to HINDCAST_ADAGRAD");
}

template <class Options>
Options make_options(const hindcast_optimizer& as) {
  Options options = options_of(as, Options(as.lr));
  options.lr(as.lr);
  return options;
}

// Arguments that torch::optim rejects are the caller's error.
template <class F>
auto as_invalid_argument(const F& f) {
  try {
    return f();
  } catch (const c10::Error& error) {
    throw std::invalid_argument(error.what_without_backtrace());
  }
}

}  // namespace

hindcast_optimizer defaults_of(int32_t kind) {
  return with_kind(kind, [&](auto classes) {
    const typename decltype(classes)::OptionsClass options(kSgdLearningRate);
    hindcast_optimizer result{};
    result.size = sizeof(hindcast_optimizer);
    result.kind = kind;
    result.clip_norm_type = ClipGradNorm().norm_type;
    set_defaults(result, options);
    if constexpr (std::is_same_v<typename decltype(classes)::OptionsClass, SGDOptions>) {
      result.lr = kSgdLearningRate;
    } else {
      result.lr = typename decltype(classes)::OptionsClass().lr();
    }
    return result;
  });
}

hindcast_optimizer read_optimizer(const hindcast_optimizer* given) {
  require(given != nullptr, "the optimizer is NULL");
  const hindcast_optimizer read = read_struct(given, hindcast_optimizer{}, "hindcast_optimizer_init");
  const hindcast_optimizer defaults = defaults_of(read.kind);  // for fields that an older caller's struct lacks
  return read_struct(given, defaults, "hindcast_optimizer_init");
}

std::unique_ptr<Optimizer> make_optimizer(const hindcast_optimizer& as, std::vector<at::Tensor> parameters) {
  require(!parameters.empty(), "there are no parameters");
  for (size_t i = 0; i < parameters.size(); ++i) {
    require(parameters[i].is_leaf() && parameters[i].requires_grad(),
            "parameter " + std::to_string(i) + " is no leaf that requires a gradient");
  }
  return as_invalid_argument([&] {
    return with_kind(as.kind, [&](auto classes) -> std::unique_ptr<Optimizer> {
      using Classes = decltype(classes);
      return std::make_unique<typename Classes::OptimizerClass>(std::move(parameters), make_options<typename Classes::OptionsClass>(as));
    });
  });
}

void add_group(Optimizer& optimizer, const hindcast_optimizer& as, std::vector<at::Tensor> parameters) {
  require(as.kind != HINDCAST_ADAGRAD, "LibTorch's Adagrad takes no more parameters");
  const auto checked = make_optimizer(as, parameters);
  as_invalid_argument([&] {
    with_kind(as.kind, [&](auto classes) {
      using Options = typename decltype(classes)::OptionsClass;
      optimizer.add_param_group(OptimizerParamGroup(std::move(parameters), std::make_unique<Options>(make_options<Options>(as))));
    });
  });
}

std::optional<ClipGradNorm> clip_of(const hindcast_optimizer& as) {
  require(as.clip_max_norm >= 0, "clip_max_norm is " + std::to_string(as.clip_max_norm) + "; expected 0, for none, or a norm");
  if (as.clip_max_norm == 0) return std::nullopt;
  require(!std::isnan(as.clip_norm_type), "clip_norm_type is NaN; expected the p of a p-norm, or infinity");
  return ClipGradNorm{as.clip_max_norm, as.clip_norm_type};
}

}  // namespace hindcast::c_api
