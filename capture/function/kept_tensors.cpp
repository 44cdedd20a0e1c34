// Tensors that a function keeps: found when it returns, before anything can use one.

#include "capture/function/kept_tensors.h"

#include "capture/function/function_trace.h"
#include "capture/function/history.h"
#include "capture/function/watch_grad.h"

#include <c10/core/impl/PyInterpreterHooks.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

namespace hindcast::capture {

using torch::autograd::Edge;

namespace {

// A Python object holds one reference to its tensor, which holds the object while it has other references: an object with two is the
// user's.
size_t python_references(const at::Tensor& tensor) {
  PyObject* const object = tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  return object == nullptr ? 0 : (*c10::impl::getGlobalPyInterpreter())->refcnt(object);
}

bool is_step_of(const ViewStep& a, const ViewStep& b) { return a.op == b.op && a.output == b.output; }

// Autograd's path from a view back to its base holds each tensor on the way.
void count_viewed(const std::vector<at::Tensor>& held, References& references) {
  std::unordered_map<const Base*, std::vector<const TracingTensor*>> by_memory;
  for (const at::Tensor& tensor : held) {
    if (const TracingTensor* traced = TracingTensor::get(tensor)) by_memory[traced->base.get()].push_back(traced);
  }
  for (const at::Tensor& tensor : held) {
    const TracingTensor* view = TracingTensor::get(tensor);
    if (view == nullptr || view->views.empty() || torch::autograd::impl::get_view_autograd_meta(tensor) == nullptr) continue;
    for (const TracingTensor* viewed : by_memory[view->base.get()]) {
      if (viewed->views.size() < view->views.size() &&
          std::equal(viewed->views.begin(), viewed->views.end(), view->views.begin(), is_step_of))
        ++references[viewed];
    }
  }
}

std::atomic<void (*)(bool)> garbage_collector = nullptr;

}  // namespace

void collect_garbage_by(void (*collect)(bool all)) { garbage_collector = collect; }

// True if something else than autograd's history and this trace holds a stand-in: the function keeps it.
bool FunctionTrace::keeps_some(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> held = recorder_.held();
  for (const CopiedNumbers& copied : copied_numbers_) held.push_back(copied.tensor);
  const SymbolTable::Looking looking(*graph_->symbols);
  std::vector<Edge> accumulators;
  for (const Primal& primal : primals_) accumulators.push_back(primal.inner);
  auto references = references_of(held, accumulators);
  may_keep_some_ = !references;
  if (!references) return false;  // it will be found after the backward
  const auto count = [&](const at::Tensor& tensor) {
    if (traced_of(tensor) != nullptr) ++(*references)[tensor.unsafeGetTensorImpl()];
  };
  std::for_each(outputs.begin(), outputs.end(), count);
  std::for_each(held.begin(), held.end(), count);
  std::for_each(result_stand_ins_.begin(), result_stand_ins_.end(), count);
  for (const Primal& primal : primals_) {
    count(primal.stand_in);
    if (primal.stand_in.defined()) count(grad_of(primal.stand_in));
  }
  recorder_.for_each_lifted(count);
  std::for_each(made_of_numbers_.begin(), made_of_numbers_.end(), count);
  for (const CopiedNumbers& copied : copied_numbers_) {
    count(copied.stand_in);
    count(copied.tensor);  // held by us,
    count(copied.tensor);  // and by the recorder
    for (const at::Tensor& tensor : held) {
      if (tensor.is_view() && tensor._base().is_same(copied.tensor)) count(copied.tensor);
    }
  }
  count_viewed(held, *references);
  return std::any_of(held.begin(), held.end(), [&](const at::Tensor& tensor) {
    const size_t by_python = python_references(tensor);
    return by_python > 1 || tensor.use_count() > (*references)[tensor.unsafeGetTensorImpl()] + by_python;
  });
}

void FunctionTrace::find_kept(const std::vector<at::Tensor>& outputs) {
  if (!keeps_some(outputs)) return;
  const auto collect = garbage_collector.load();
  for (const bool all : {false, true}) {
    if (collect == nullptr || (all && !collects_all_garbage_)) break;
    Recorder::unrecorded([&] { collect(all); });  // frees reference cycles that the function dropped
    if (!keeps_some(outputs)) return;
  }
  keeps_tensors_ = true;
  throw NotTraced(kKeepsATensor);
}

}  // namespace hindcast::capture
