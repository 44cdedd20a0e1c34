#pragma once
// More words of fuzzed programs, for those with functions compiled ahead of time: the functions, and what their logs are compared by.
// print_cpp pastes this file behind runtime.h.

#include <hindcast/aot.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "tests/whole/fuzz/runtime.h"

namespace hindcast::tests::fuzz {

template <class S>
auto hindcast_members(S& step, Step*) {
  return std::tie(step.number, step.batch, step.scalar);
}

/// All that a function may know of a step's number: a number of its own for each step would be a program for each.
inline int kind_of_step(const Step& step) { return step.number == 0 ? 0 : 2 - step.number % 2; }

/// A part of a step: as it is, or compiled ahead of time.
class StepFunction {
 public:
  using Body = std::function<variable_list(variable_list in, Step step)>;

  /// `options` empty: as it is. `rehearsed`: each call comes twice.
  StepFunction(Body body, const std::optional<AotOptions>& options, bool rehearsed) : body_(std::move(body)), rehearsed_(rehearsed) {
    if (options) compiled_.emplace(hindcast::aot_function(body_, *options));
  }

  variable_list operator()(Log& log, const std::string& name, const variable_list& in, const Step& step) const {
    if (rehearsed_) {
      const at::NoGradGuard no_grad;
      variable_list copies;
      for (const at::Tensor& each : in) copies.push_back(each.clone());
      log.show(name + " without gradients", call(copies, step));
    }
    return call(in, step);
  }
  AotStats stats() const { return compiled_ ? compiled_->stats() : AotStats(); }

 private:
  variable_list call(const variable_list& in, const Step& step) const { return compiled_ ? (*compiled_)(in, step) : body_(in, step); }

  Body body_;
  bool rehearsed_;
  std::optional<AotFunction<Body>> compiled_;
};

// ---- comparing ----
//
// A compiled function is one node of autograd's graph. So gradients are summed up in another order, hooks of different tensors are called
// in another order, a hook on a result is called where nothing flows into it.
// Where gradients of some inputs are asked for, the engine walks to the function for all of its inputs.

inline bool is_zero(const at::Tensor& tensor) { return !tensor.defined() || !tensor.ne(0).any().item<bool>(); }

/// Equal but for rounding, relative to the largest element.
inline bool is_near(const at::Tensor& given, const at::Tensor& expected, bool is_exact, bool coarse) {
  if (given.scalar_type() != expected.scalar_type() || given.sizes() != expected.sizes()) return false;
  const auto wide = [](const at::Tensor& tensor) {
    return at::view_as_real(tensor.resolve_conj().resolve_neg().to(at::kComplexDouble)).contiguous();
  };
  const at::Tensor a = wide(given), b = wide(expected);
  const at::Tensor same = a.eq(b).logical_or(a.isnan().logical_and(b.isnan()));
  if (same.all().item<bool>()) return true;
  if (is_exact) return false;
  const bool is_double = given.scalar_type() == at::kDouble || given.scalar_type() == at::kComplexDouble;
  const double unit = given.scalar_type() == at::kBFloat16 || coarse ? 0.05 : is_double ? 1e-9 : 1e-4;
  // In float64 what should be 0, and is what rounding left of terms that cancel, is nearer to it than to itself.
  const at::Tensor bound = b.abs().nan_to_num(0, 0, 0).max() * unit + (is_double ? 1e-12 : 0);
  return same.logical_or((a - b).abs().le(bound)).all().item<bool>();
}

struct Nearness {
  bool zeros_for_nothing = false;
  bool more_hooks = false;    ///< those of nodes that lead to other inputs of a function than to those that are asked for
  bool exact_results = true;  ///< what functions return is compared to the bit
  bool coarse = false;        ///< bfloat16 may be anywhere
};

/// What one step did, by the name of what is shown.
struct StepEvents {
  std::map<std::string, std::vector<size_t>> shown;
  std::map<std::string, std::vector<std::string>> thrown;
};

inline std::vector<StepEvents> by_steps(const Log& log) {
  std::vector<StepEvents> steps;
  for (size_t i = 0; i < log.events().size(); ++i) {
    const std::string& event = log.events()[i];
    const size_t threw = event.find(" threw: ");
    if (threw != std::string::npos) {
      steps.back().thrown[event.substr(0, threw)].push_back(event.substr(threw + 8));
    } else if (const size_t equals = event.find(" = "); equals != std::string::npos) {
      steps.back().shown[event.substr(0, equals)].push_back(i);
    } else {
      steps.emplace_back();
    }
  }
  return steps;
}

/// Empty: none. Both lists are of one name; zeros that nobody expects are passed over where they may be.
inline std::string difference_of_one(const Log& stock, const std::vector<size_t>& expected, const Log& ours,
                                     const std::vector<size_t>& given, const Nearness& nearness) {
  size_t at = 0;
  const auto differ = [&](const std::string& own) {
    return "  stock:    " + (at < expected.size() ? stock.events()[expected[at]] : "(nothing)") + "\n  hindcast: " + own + "\n";
  };
  // Whether a hook was called with nothing.
  const auto is_nothing = [](const Log& log, size_t event) {
    return !log.tensors()[event].defined() && log.events()[event].find(".grad = ") == std::string::npos;
  };
  const auto pass_over = [&] {
    while (at < expected.size() && is_nothing(stock, expected[at])) ++at;
  };
  for (const size_t event : given) {
    const at::Tensor& tensor = ours.tensors()[event];
    const bool may_be_zero = nearness.zeros_for_nothing && is_zero(tensor);
    if (is_nothing(ours, event)) continue;
    pass_over();
    if (at < expected.size()) {
      const at::Tensor& wanted = stock.tensors()[expected[at]];
      const bool is_result = ours.events()[event].compare(0, 4, "made") == 0;
      const bool same = tensor.defined() && wanted.defined() ? is_near(tensor, wanted, nearness.exact_results && is_result, nearness.coarse)
                                                             : tensor.defined() == wanted.defined() || (!wanted.defined() && may_be_zero);
      if (same) {
        ++at;
        continue;
      }
    }
    const bool is_hook = ours.events()[event].find("hook ") != std::string::npos;
    const bool is_ready = ours.events()[event].compare(0, 6, "ready:") == 0;  // once more, when nothing has come
    if (!may_be_zero && !is_ready && !(is_hook && nearness.more_hooks)) return differ(ours.events()[event]);
  }
  pass_over();
  return at == expected.size() ? "" : differ("(nothing)");
}

inline std::string first_words(const std::string& message) { return message.substr(0, std::min<size_t>(message.find(':'), 60)); }

struct FunctionDifference {
  std::string text;     ///< empty: none
  std::string stopped;  ///< why nothing is compared from some step on
};

/// Why nothing can be compared any more once a call has thrown; "": all can. Fills `difference` where the errors are not those of
/// docs/aot.md.
inline std::string why_stop(const StepEvents& stock, const StepEvents& ours, std::string& difference) {
  const auto all = [](const StepEvents& step) {
    std::vector<std::pair<std::string, std::string>> list;
    for (const auto& [name, messages] : step.thrown) {
      for (const std::string& message : messages) list.emplace_back(name, message);
    }
    return list;
  };
  const auto has = [](const std::string& message, std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return message.find(part) != std::string::npos; });
  };
  const auto is_harmless = [&](const std::string& message) {
    return has(message, {"grad can be implicitly created", "does not require grad", "used in an in-place operation"});
  };
  const auto throws = [](const StepEvents& step, const std::string& name) { return step.thrown.count(name) != 0; };
  for (const auto& [name, message] : all(ours)) {
    if (throws(stock, name)) {
      const std::string& expected = stock.thrown.at(name).front();
      const auto is_unused = [&](const std::string& text) { return has(text, {"appears to not have been used"}); };
      if (first_words(expected) == first_words(message) || (is_unused(expected) && is_unused(message))) {
        if (is_harmless(message)) continue;
        return "both threw";
      }
    }
    if (has(message, {"second derivatives through what the function computes"})) return "second derivatives refused";
    if (has(message, {"a second time"})) return "one node, a second time";
    if (has(message, {"modified by an inplace operation"})) return "one node, saved and written";
    difference = "  hindcast: " + name + " threw: " + message + "\n";
    return "differs";
  }
  for (const auto& [name, message] : all(stock)) {
    if (throws(ours, name)) continue;
    if (has(message, {"modified by an inplace operation"})) return "stock alone: saved and written";
    if (has(message, {"appears to not have been used"})) return "stock alone: not used";
    difference = "  stock:    " + name + " threw: " + message + "\n";
    return "differs";
  }
  return "";
}

inline FunctionDifference compare_functions(const Log& stock, const Log& ours, const Nearness& nearness) {
  const std::vector<StepEvents> expected = by_steps(stock), given = by_steps(ours);
  for (size_t step = 0; step < expected.size(); ++step) {
    const std::string where = "step " + std::to_string(step) + "\n";
    std::string difference;
    const std::string stop = why_stop(expected[step], given.at(step), difference);
    if (!difference.empty()) return {where + difference, ""};
    if (!stop.empty()) return {"", stop};
    std::map<std::string, std::vector<size_t>> names = expected[step].shown;
    for (const auto& [name, events] : given[step].shown) names.try_emplace(name);
    for (const auto& [name, events] : names) {
      const auto found = given[step].shown.find(name);
      difference =
          difference_of_one(stock, events, ours, found == given[step].shown.end() ? std::vector<size_t>() : found->second, nearness);
      if (!difference.empty()) return {where + difference, ""};
    }
  }
  return {};
}

}  // namespace hindcast::tests::fuzz
