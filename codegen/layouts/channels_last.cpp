#include "codegen/layouts/channels_last.h"

#include "capture/graph/args.h"
#include "capture/graph/known_op.h"
#include "capture/ops/op_facts.h"
#include "codegen/fuse/pointwise_ops.h"
#include "codegen/layouts/batch_norm.h"

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace hindcast::codegen {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Joint;
using capture::Value;
using capture::ValueId;

namespace {

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0; step *= std::max<int64_t>(sizes[d], 1)) strides[d] = step;
  return strides;
}

// Empty if the argument is not a constant.
std::vector<int64_t> ints_of(const Arg& arg) {
  std::vector<int64_t> ints;
  if (arg.kind != Arg::Kind::Constant) return ints;
  if (arg.constant.isIntList()) return arg.constant.toIntVector();
  if (!arg.constant.isList()) return ints;
  for (const c10::IValue& item : arg.constant.toListRef()) {
    if (!item.isInt()) return {};
    ints.push_back(item.toInt());
  }
  return ints;
}

class Rewriter {
 public:
  Rewriter(const Joint& joint, const CostModel& costs, Measured by, const std::function<bool()>& is_cancelled)
      : costs_(costs),
        by_(by),
        is_cancelled_(is_cancelled),
        joint_(joint),
        old_(*joint.graph),
        graph_(std::make_shared<Graph>(*joint.graph)),
        is_last_(old_.values.size()) {
    graph_->symbols = graph_->symbols->copy();  // the original symbols may be in use by running programs
    for (const Instr& instr : old_.instrs) {
      if (is_named(instr, "aten::convolution_backward")) backward_of_[backward_place_of(instr)] = &instr;
    }
  }

  std::optional<ChannelsLast> run() {
    graph_->instrs.truncate(0);
    uint32_t forward_end = 0;
    for (uint32_t i = 0; i <= old_.instrs.size(); ++i) {
      if (i == joint_.forward_end) {
        restore_outputs(0, joint_.results);
        forward_end = static_cast<uint32_t>(graph_->instrs.size());
      }
      if (i < old_.instrs.size() && !add(old_.instrs[i])) return std::nullopt;
    }
    if (convolutions_ == 0) return std::nullopt;
    restore_outputs(joint_.results, graph_->outputs.size());
    graph_->verify();
    made_.joint = joint_;
    made_.joint.forward_end = forward_end;
    made_.joint.graph = std::move(graph_);
    return std::move(made_);
  }

 private:
  // Identifies a convolution and its backward: image, weight, and the other arguments. The weight alone is not enough, since it may be used
  // by several convolutions, of which one has no gradient of its image, or another layout.
  using Place = std::tuple<uint32_t, uint32_t, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>, bool>;
  static Place place_of(const Instr& instr, size_t image, size_t stride) {
    const Arg& transposed = instr.args[stride + 3];
    return {instr.args[image].values[0].index, instr.args[image + 1].values[0].index, ints_of(instr.args[stride]),
            ints_of(instr.args[stride + 1]),   ints_of(instr.args[stride + 2]),       capture::is_true(transposed)};
  }
  static Place forward_place_of(const Instr& instr) { return place_of(instr, 0, 3); }
  static Place backward_place_of(const Instr& instr) { return place_of(instr, 1, 4); }

  static bool is_named(const Instr& instr, std::string_view name) { return instr.op && instr.op->operator_name().name == name; }

  std::vector<int64_t> sizes_of(ValueId value) const {
    std::vector<int64_t> sizes;
    for (const capture::ExprId size : graph_->values[value.index].sizes) sizes.push_back(graph_->symbols->hint(size));
    return sizes;
  }
  bool is_image(ValueId value) const {
    if (!value.defined()) return false;
    const Value& of = graph_->values[value.index];
    return of.defined && of.sizes.size() == 4 && of.dtype == at::kFloat && of.device.is_cpu();
  }
  bool is_last(ValueId value) const { return value.defined() && value.index < is_last_.size() && is_last_[value.index]; }
  bool is_contiguous(ValueId value) const { return graph_->values[value.index].strides == contiguous_strides(sizes_of(value)); }

  // A copy of the value in the layout; each copy is made only once.
  ValueId copy(ValueId value, at::MemoryFormat format, std::unordered_map<uint32_t, ValueId>& copies, uint32_t origin) {
    const auto [found, is_new] = copies.try_emplace(value.index);
    if (!is_new) return found->second;
    static constinit capture::KnownOp clone("aten::clone");
    Value copied = graph_->values[value.index];
    copied.is_view = false;
    const auto sizes = sizes_of(value);
    const bool to_last = format == at::MemoryFormat::ChannelsLast;
    copied.strides = to_last ? c10::get_channels_last_strides_2d(sizes) : contiguous_strides(sizes);
    graph_->values.emplace_back() = std::move(copied);
    const ValueId id{static_cast<uint32_t>(graph_->values.size() - 1)};
    is_last_.resize(graph_->values.size());
    is_last_[id.index] = to_last;
    Instr& instr = graph_->instrs.emplace_back();
    instr.op = clone.get();
    instr.origin = origin;
    instr.args = {capture::tensor(value), capture::constant(static_cast<int64_t>(format))};
    instr.outputs = {id};
    made_.last += copy_time(sizes, by_);
    return found->second = id;
  }
  ValueId last(ValueId value, uint32_t origin) {
    return !value.defined() || is_last(value) ? value : copy(value, at::MemoryFormat::ChannelsLast, last_of_, origin);
  }
  ValueId plain(ValueId value, uint32_t origin) {
    return is_last(value) ? copy(value, at::MemoryFormat::Contiguous, plain_of_, origin) : value;
  }

  // Marks a result as channels-last; returns false if its original layout is not contiguous.
  bool set_last(ValueId value) {
    if (!is_image(value) || !is_contiguous(value)) return false;
    is_last_[value.index] = true;
    graph_->values.edit(value.index).strides = c10::get_channels_last_strides_2d(sizes_of(value));
    return true;
  }

  void restore_outputs(size_t first, size_t behind) {
    for (size_t i = first; i < behind; ++i) graph_->outputs[i] = plain(graph_->outputs[i], 0);
  }

  // Adds an instr to the new program; returns false if the program cannot be rewritten.
  bool add(Instr instr) {
    if (is_named(instr, "aten::convolution")) return add_convolution(std::move(instr));
    if (is_named(instr, "aten::convolution_backward")) return add_convolution_backward(std::move(instr));
    if (sums_over_images(instr)) return add_sums(std::move(instr));
    if (const size_t images = images_of(instr); images != 0) return add_following(std::move(instr), images);
    if (is_of_elements(instr)) return add_of_elements(std::move(instr));
    if (is_mean_of_planes(instr)) return push(std::move(instr));
    return add_plain(std::move(instr));
  }

  bool push(Instr instr) {
    graph_->instrs.emplace_back() = std::move(instr);
    return true;
  }

  bool add_plain(Instr instr) {
    const auto redirect = [&](ValueId& value) { value = plain(value, instr.origin); };
    for (Arg& arg : instr.args) std::for_each(arg.values.begin(), arg.values.end(), redirect);
    std::for_each(instr.inputs.begin(), instr.inputs.end(), redirect);
    redirect(instr.base);
    for (auto& view : instr.views) {
      for (Arg& arg : view.args) std::for_each(arg.values.begin(), arg.values.end(), redirect);
    }
    return push(std::move(instr));
  }

  // (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
  std::optional<Convolution> convolution_of(const Instr& instr) const {
    constexpr size_t kStride = 3, kPadding = 4, kDilation = 5, kTransposed = 6, kGroups = 8;
    const auto& args = instr.args;
    const bool is_plain = instr.kind == InstrKind::Op && is_image(args[0].values[0]) && is_image(args[1].values[0]) &&
                          capture::is_bool(args[kTransposed]) && !capture::is_true(args[kTransposed]) && args[kGroups].constant.isInt();
    if (!is_plain) return std::nullopt;
    Convolution of{sizes_of(args[0].values[0]), sizes_of(args[1].values[0]),    ints_of(args[kStride]), ints_of(args[kPadding]),
                   ints_of(args[kDilation]),    args[kGroups].constant.toInt(), !args[2].values.empty()};
    if (of.stride.empty() || of.padding.empty() || of.dilation.empty()) return std::nullopt;
    // With only one image or one row, strides do not determine the layout, so that pointwise expressions could not be fused.
    const auto output = sizes_of(instr.outputs[0]);
    for (const size_t dim : {0, 2, 3}) {
      if (of.input[dim] <= 1 || output[dim] <= 1) return std::nullopt;
    }
    return of;
  }

  bool add_convolution(Instr instr) {
    auto of = convolution_of(instr);
    if (!of) return add_plain(std::move(instr));
    Place place = forward_place_of(instr);
    if (const auto backward = backward_of_.find(place); backward != backward_of_.end())
      of->gives_input_gradient = backward->second->outputs[0].defined() && graph_->values[backward->second->outputs[0].index].defined;
    if (is_cancelled_ && is_cancelled_()) return false;
    const ConvolutionTimes times = times_of(*of, by_);
    ++convolutions_;
    made_.plain += times.plain;
    if (!times.output_is_last) {  // e.g. one channel, where both layouts are the same, or no channels-last code for this convolution
      made_.last += times.plain;
      return add_plain(std::move(instr));
    }
    made_.last += times.last;
    works_last_[std::move(place)] = times;
    for (size_t i : {0, 1}) instr.args[i].values[0] = last(instr.args[i].values[0], instr.origin);
    const ValueId output = instr.outputs[0];
    return push(std::move(instr)) && set_last(output);
  }

  // (grad_output, input, weight, ...)
  bool add_convolution_backward(Instr instr) {
    const auto found = works_last_.find(backward_place_of(instr));
    if (found == works_last_.end()) return add_plain(std::move(instr));
    for (size_t i : {0, 1, 2}) instr.args[i].values[0] = last(instr.args[i].values[0], instr.origin);
    const auto outputs = instr.outputs;
    push(std::move(instr));
    const auto follows = [&](size_t output, bool is_last) {
      const bool is_there = is_last && outputs[output].defined() && graph_->values[outputs[output].index].defined;
      return !is_there || set_last(outputs[output]);
    };
    return follows(0, found->second.input_gradient_is_last) && follows(1, found->second.weight_gradient_is_last);
  }

  static size_t images_of(const Instr& instr) {
    return instr.kind == InstrKind::Op ? capture::facts_of(instr.op->operator_name()).images : 0;
  }

  bool add_following(Instr instr, size_t images) {
    bool any = false;
    for (size_t i = 0; i < images; ++i) any = any || is_last(instr.args[i].values[0]);
    const ValueId output = instr.outputs[0];
    if (!any || !is_image(output)) return add_plain(std::move(instr));
    for (size_t i = 0; i < images; ++i) instr.args[i].values[0] = last(instr.args[i].values[0], instr.origin);
    const bool has_places = is_named(instr, "aten::max_pool2d_with_indices");
    const ValueId places = has_places ? instr.outputs[1] : ValueId();
    push(std::move(instr));
    // Indices into a plane. The backward needs them in the layout of the image; other readers get them in the original layout.
    if (has_places) {
      is_last_[places.index] = true;
      graph_->values.edit(places.index).strides = c10::get_channels_last_strides_2d(sizes_of(places));
    }
    return set_last(output);
  }

  // Decomposes a batch norm. In the forward, LibTorch's channels-last kernel takes longer than a copy, which the next convolution needs
  // anyway.
  bool add_sums(Instr instr) {
    const bool is_backward = is_named(instr, "aten::native_batch_norm_backward");
    const size_t images = is_backward ? 2 : 1;
    const ValueId input = instr.args[0].values[0];
    bool any = false;
    for (size_t i = 0; i < images; ++i) any = any || is_last(instr.args[i].values[0]);
    const bool may_move = !is_backward && is_image(input) && is_contiguous(input) && has_ops_for_sums(*graph_, instr, costs_);
    if (!any && !may_move) return add_plain(std::move(instr));
    if (!has_ops_for_sums(*graph_, instr, costs_)) return false;
    for (size_t i = 0; i < images; ++i) instr.args[i].values[0] = last(instr.args[i].values[0], instr.origin);
    add_batch_norm(*graph_, instr);
    return !is_image(instr.outputs[0]) || set_last(instr.outputs[0]);
  }

  static bool is_of_elements(const Instr& instr) {
    if (instr.kind == InstrKind::AddGrads) return true;
    if (!instr.op || !instr.views.empty() || instr.outputs.size() != 1) return false;
    if (instr.kind == InstrKind::Op) return find_pointwise_op(instr.op->operator_name()) != nullptr;
    const auto& name = instr.op->operator_name();
    if (instr.kind != InstrKind::Mutate || !name.name.ends_with("_") || instr.target_arg != 0) return false;
    return find_pointwise_op({name.name.substr(0, name.name.size() - 1), name.overload_name}) != nullptr;
  }

  // A pointwise op: operands that are whole images get the layout of the result; broadcast operands keep theirs.
  bool add_of_elements(Instr instr) {
    const ValueId output = instr.outputs[0];
    const auto sizes = sizes_of(output);
    bool any = false;
    const auto is_whole = [&](ValueId value) { return value.defined() && sizes_of(value) == sizes; };
    const auto for_each = [&](auto visit) {
      for (Arg& arg : instr.args) std::for_each(arg.values.begin(), arg.values.end(), visit);
      std::for_each(instr.inputs.begin(), instr.inputs.end(), visit);
      if (instr.base.defined()) visit(instr.base);
    };
    for_each([&](ValueId& value) { any = any || (is_last(value) && is_whole(value)); });
    any = any || is_spread(instr, sizes);
    const bool is_mask = sizes.size() == 4 && graph_->values[output.index].dtype == at::kBool;
    if (!any || !(is_image(output) || is_mask) || !is_contiguous(output)) return add_plain(std::move(instr));
    for_each([&](ValueId& value) {
      if (!value.defined()) return;
      const bool goes_along = is_whole(value) && is_image(value) && is_contiguous_before(value);
      value = goes_along ? last(value, instr.origin) : plain(value, instr.origin);
    });
    push(std::move(instr));
    if (is_image(output)) return set_last(output);
    is_last_[output.index] = true;
    graph_->values.edit(output.index).strides = c10::get_channels_last_strides_2d(sizes);
    return true;
  }

  // Whether the operands are one number per plane, as in the gradient of a mean: the result can then be computed in either layout.
  bool is_spread(const Instr& instr, const std::vector<int64_t>& sizes) const {
    if (sizes.size() != 4 || sizes[2] * sizes[3] == 1) return false;
    bool any = false, all = true;
    capture::for_each_use(instr, [&](ValueId value) {
      if (!value.defined() || sizes_of(value) != sizes) return;
      any = true;
      const auto& strides = graph_->values[value.index].strides;
      all = all && strides.size() == 4 && strides[2] == 0 && strides[3] == 0;
    });
    return any && all;
  }

  // Whether this is a mean over planes. Its result, one number per plane, is the same in both layouts.
  bool is_mean_of_planes(const Instr& instr) const {
    if (instr.kind != InstrKind::Op || !is_named(instr, "aten::mean") || instr.op->operator_name().overload_name != "dim") return false;
    auto dims = ints_of(instr.args[1]);
    for (int64_t& dim : dims) dim += dim < 0 ? 4 : 0;
    std::sort(dims.begin(), dims.end());
    return is_last(instr.args[0].values[0]) && dims == std::vector<int64_t>{2, 3};
  }

  bool is_contiguous_before(ValueId value) const { return is_last(value) || is_contiguous(value); }

  const CostModel& costs_;
  const Measured by_;
  const std::function<bool()>& is_cancelled_;
  const Joint& joint_;
  const Graph& old_;
  std::shared_ptr<Graph> graph_;
  std::vector<bool> is_last_;                                 // by value
  std::unordered_map<uint32_t, ValueId> last_of_, plain_of_;  // copies in the other layout
  std::map<Place, const Instr*> backward_of_;
  std::map<Place, ConvolutionTimes> works_last_;
  size_t convolutions_ = 0;
  ChannelsLast made_;
};

}  // namespace

namespace {

bool has_op(const Graph& graph, std::string_view name) {
  return std::any_of(graph.instrs.begin(), graph.instrs.end(),
                     [&](const Instr& instr) { return instr.op && instr.op->operator_name().name == name; });
}

}  // namespace

bool has_convolutions(const Graph& graph) { return has_op(graph, "aten::convolution"); }
bool has_backwards_of_convolutions(const Graph& graph) { return has_op(graph, "aten::convolution_backward"); }

std::optional<ChannelsLast> with_channels_last(const Joint& joint, const CostModel& costs, Measured by,
                                               const std::function<bool()>& is_cancelled) {
  if (!has_convolutions(*joint.graph)) return std::nullopt;
  return Rewriter(joint, costs, by, is_cancelled).run();
}

}  // namespace hindcast::codegen
