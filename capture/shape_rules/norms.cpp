// Normalisation, losses and attention.

#include "capture/shape_rules/shape_call.h"

#include <algorithm>

namespace hindcast::capture {
namespace {

Outputs layer_norm(const ShapeCall& call) {
  const Sizes& input = call.tensor("input");
  const size_t normalized = call.integers("normalized_shape").size();
  require(normalized <= input.size());
  Sizes statistics = input;
  std::fill(statistics.end() - static_cast<ptrdiff_t>(normalized), statistics.end(), call.constant(1));
  Outputs outputs(call.outputs(), statistics);
  outputs[0] = input;
  return outputs;
}

Outputs group_norm(const ShapeCall& call) {
  const Sizes statistics{call.integer("N"), call.integer("group")};
  return {call.tensor("input"), statistics, statistics};
}

/// The channels of `input`.
ExprId channels(const ShapeCall& call) {
  const Sizes& input = call.tensor("input");
  require(input.size() >= 2);
  return input[1];
}

// In evaluation nothing is saved: on some devices the statistics have no elements then.
Outputs batch_norm(const ShapeCall& call) {
  const ExprId per_channel = channels(call);
  Outputs outputs{call.tensor("input")};
  for (size_t i = 1; i < call.outputs(); ++i) {
    const bool none = call.real(i) == std::vector<int64_t>{0};
    require(none || i < 3);  // cuDNN's reserve has no rule
    outputs.push_back({none ? call.constant(0) : per_channel});
  }
  return outputs;
}

// Its last two results are the new running statistics.
Outputs functional_batch_norm(const ShapeCall& call) {
  const ExprId per_channel = channels(call);
  Outputs outputs{call.tensor("input")};
  for (size_t i = 1; i < call.outputs(); ++i) {
    const bool none = call.real(i) == std::vector<int64_t>{0};
    outputs.push_back({none ? call.constant(0) : per_channel});
  }
  return outputs;
}

/// The first output has the sizes of `likes`, if it is given; all others have one number per channel.
Outputs per_channel(const ShapeCall& call) {
  const ExprId count = channels(call);
  Outputs outputs;
  for (size_t i = 0; i < call.outputs(); ++i) {
    const bool whole = i == 0 && !call.likes.empty();
    outputs.push_back(call.unless_undefined(i, whole ? call.tensor(call.likes) : Sizes{count}));
  }
  return outputs;
}

Outputs group_norm_backward(const ShapeCall& call) {
  const Sizes per_channel{call.integer("C")};
  require(call.outputs() == 3);
  return {call.unless_undefined(0, call.tensor("input")), call.unless_undefined(1, per_channel), call.unless_undefined(2, per_channel)};
}

bool is_unreduced(const ShapeCall& call) { return call.number("reduction") == 0; }

Outputs pointwise_loss(const ShapeCall& call) {
  Sizes sizes = call.broadcast(call.tensor("self"), call.tensor("target"));
  for (const std::string_view name : {"weight", "pos_weight"}) {
    if (call.has_tensor(name)) sizes = call.broadcast(sizes, call.tensor(name));
  }
  return {is_unreduced(call) ? sizes : Sizes{}};
}

Outputs binary_cross_entropy(const ShapeCall& call) { return {is_unreduced(call) ? call.tensor("self") : Sizes{}}; }

Outputs pointwise_loss_backward(const ShapeCall& call) {
  return {call.broadcast(call.broadcast(call.tensor("self"), call.tensor("target")), call.tensor("grad_output"))};
}

/// One number per sample: the target's sizes.
Outputs class_loss(const ShapeCall& call) {
  const Sizes loss = is_unreduced(call) ? call.tensor("target") : Sizes{};
  return call.outputs() == 1 ? Outputs{loss} : Outputs{loss, {}};
}

Outputs multilabel_margin_loss(const ShapeCall& call) {
  const Sizes& target = call.tensor("target");
  const bool per_sample = is_unreduced(call) && target.size() == 2;
  return {per_sample ? Sizes{target[0]} : Sizes{}, target};
}

Outputs attention(const ShapeCall& call) {
  Sizes output = call.tensor("query");
  require(output.size() == 4);
  const Sizes per_query(output.begin(), output.end() - 1);
  output.back() = call.tensor("value").back();
  return {output, per_query};
}

constexpr RuleRow kNormRules[] = {
    {"native_layer_norm _fused_rms_norm", layer_norm},
    {"native_layer_norm_backward", same_as, "input weight bias"},
    {"_fused_rms_norm_backward", same_as, "input weight"},
    {"native_group_norm", group_norm},
    {"native_group_norm_backward", group_norm_backward},
    {"native_batch_norm _native_batch_norm_legit _native_batch_norm_legit.no_stats "
     "_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update cudnn_batch_norm",
     batch_norm},
    {"_native_batch_norm_legit_functional", functional_batch_norm},
    {"native_batch_norm_backward cudnn_batch_norm_backward batch_norm_backward", per_channel, "input"},
    {"batch_norm_stats batch_norm_update_stats batch_norm_gather_stats batch_norm_gather_stats_with_counts "
     "batch_norm_backward_reduce",
     per_channel},
    {"batch_norm_elemt batch_norm_backward_elemt", same_as, "input"},
    {"_weight_norm_interface", same_as, "v g"},
    {"_weight_norm_interface_backward", same_as, "saved_v saved_g"},
    {"_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward", same_as, "grad_output"},
    {"mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits l1_loss kl_div", pointwise_loss},
    {"binary_cross_entropy", binary_cross_entropy},
    {"mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward", pointwise_loss_backward},
    {"nll_loss_forward nll_loss2d_forward multi_margin_loss", class_loss},
    {"multilabel_margin_loss_forward", multilabel_margin_loss},
    {"binary_cross_entropy_backward nll_loss_backward nll_loss2d_backward multi_margin_loss_backward "
     "multilabel_margin_loss_backward",
     same_as, "self"},
    {"_ctc_loss_backward _ctc_loss_backward.Tensor", same_as, "log_probs"},
    {"_scaled_dot_product_flash_attention_for_cpu", attention},
    {"_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward "
     "_flash_attention_backward _scaled_dot_product_cudnn_attention_backward",
     same_as, "query key value"},
    {"_scaled_dot_product_efficient_attention_backward _scaled_dot_product_fused_attention_overrideable_backward", same_as,
     "query key value attn_bias"},
};

}  // namespace

std::span<const RuleRow> norm_rules() { return kNormRules; }

void intern_channels_of_a_group(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, SymbolTable& symbols) {
  if (op.operator_name().name != "aten::native_group_norm_backward") return;
  const auto constant = [&](const c10::IValue& input) {
    return input.isSymInt() ? symbols.constant(symbols.expr_of(input.toSymInt())) : std::optional(input.toInt());
  };
  const auto channels = constant(inputs[6]), groups = constant(inputs[8]);
  if (channels && groups && *groups != 0) symbols.integer(*channels / *groups);
}

}  // namespace hindcast::capture
