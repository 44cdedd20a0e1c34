#include "engine/optim/updates.h"

#include "capture/backward/facts.h"
#include "engine/optim/clip.h"
#include "engine/options/use_options.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <exception>

namespace hindcast::engine {
namespace {

// True if both have the same layout, so that a kernel can index them with the same flat offset.
bool have_same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_contiguous() && b.is_contiguous()) return a.sizes() == b.sizes();
  return a.is_non_overlapping_and_dense() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

std::string_view why_not_together(c10::ArrayRef<const at::Tensor*> tensors) {
  const at::Tensor& parameter = *tensors[0];
  for (const at::Tensor* const tensor : tensors) {
    if (!tensor->defined()) return "a part of its state is missing";
    if (!capture::is_plain(*tensor) || tensor->is_conj() || tensor->is_neg())
      return "it, its gradient or its state is not a plain strided tensor";
    if (tensor->scalar_type() != parameter.scalar_type() || tensor->device() != parameter.device())
      return "it, its gradient and its state are not of one type on one device";
    if (!have_same_layout(parameter, *tensor)) return "it, its gradient and its state do not have the same layout, without gaps";
  }
  return {};
}

// mutable_data_ptr() materialises a lazy copy before it is written.
char* memory_of(const at::Tensor& tensor, bool is_only_read) {
  return static_cast<char*>(is_only_read ? const_cast<void*>(tensor.const_data_ptr()) : tensor.mutable_data_ptr());
}

}  // namespace

std::string_view Updates::add(const Update& update, c10::ArrayRef<const at::Tensor*> tensors) {
  if (const std::string_view why = why_not_together(tensors); !why.empty()) return why;
  const at::Tensor& parameter = *tensors[0];
  if (!codegen::is_float(parameter.scalar_type())) return "kernels compute with floating point numbers of 16, 32 and 64 bits";
  KernelOf& with = kernel_of(update, parameter.scalar_type(), parameter.device());
  if (with.kernel == nullptr) return with.why_not;
  const int64_t numel = parameter.numel();
  if (numel == 0) return {};
  const auto bytes = numel * static_cast<int64_t>(parameter.element_size());
  for (size_t i = 0; i < with.tensors.size(); ++i) {
    if (with.tensors[i] == Formula::kFactor) {
      with.sets.memory.push_back(static_cast<char*>(const_cast<void*>(factor_for(with.body.compute))));
      continue;
    }
    char* const memory = memory_of(*tensors[with.tensors[i]], with.tensors[i] == Formula::kGradient);
    with.sets.memory.push_back(memory);
    if (i >= with.body.loads.size()) written_.push_back({memory, memory + bytes});
    if (with.tensors[i] == Formula::kGradient) read_.push_back({memory, memory + bytes});
  }
  items_.push_back({&with, with.sets.numel.size()});
  with.sets.scalars.push_back(keep(update));
  with.sets.numel.push_back(numel);
  return {};
}

void Updates::add_alone(const at::Tensor& parameter, std::function<void()> step) {
  const auto note = [](std::vector<Range>& ranges, const at::Tensor& tensor) {
    if (!tensor.defined() || !capture::is_plain(tensor)) return;
    const auto* const memory = static_cast<const char*>(tensor.storage().data());
    ranges.push_back({memory, memory + tensor.storage().nbytes()});
  };
  note(written_, parameter);
  note(read_, parameter.grad());
  items_.push_back({nullptr, alone_.size()});
  alone_.push_back(std::move(step));
}

void Updates::set_factor(const at::Tensor& factor) {
  factor_ = factor;
  factor_as_float_ = factor.defined() ? as_float(factor, std::move(factor_as_float_)) : at::Tensor();
}

const void* Updates::factor_for(at::ScalarType compute) const {
  return (compute == at::kDouble ? factor_ : factor_as_float_).const_data_ptr();
}

Updates::KernelOf& Updates::kernel_of(const Update& update, at::ScalarType type, c10::Device device) {
  const Name name(update.formula, update.flags, type, device, factor_.defined());
  if (last_ != nullptr && last_->name == name) return *last_;
  const auto found = std::find_if(kernels_.begin(), kernels_.end(), [&](const KernelOf& kernel) { return kernel.name == name; });
  if (found != kernels_.end()) return *(last_ = &*found);
  Formula formula(type, factor_.defined());
  update.formula(formula, update.flags);
  KernelOf made{name, formula.body(), formula.tensors(), codegen::backend_of(device.type())};
  made.sets.device = device;
  if (disabled_by_environment()) {
    made.why_not = "HINDCAST_DISABLE is set";
  } else if (made.backend == nullptr) {
    made.why_not = "no kernels are made for its device";
  } else if (made.why_not = made.backend->why_not_on(device); made.why_not.empty()) {
    made.kernel = made.backend->kernel(made.body, made.why_not);
  }
  return *(last_ = &kernels_.emplace_back(std::move(made)));
}

const double* Updates::keep(const Update& update) {
  if (scalars_.empty() || scalars_.back() != update.scalars) scalars_.push_back(update.scalars);
  return scalars_.back().data();
}

bool Updates::are_apart() {
  const auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (written_ != apart_) {
    apart_.clear();
    apart_from_.clear();
    sorted_ = written_;
    std::sort(sorted_.begin(), sorted_.end(), by_begin);
    const auto meet = [](const Range& a, const Range& b) { return b.begin < a.end; };
    if (std::adjacent_find(sorted_.begin(), sorted_.end(), meet) != sorted_.end()) return false;
    apart_ = written_;
  }
  if (read_ == apart_from_) return true;
  const bool are_apart = std::none_of(read_.begin(), read_.end(), [&](const Range& read) {
    const auto behind = std::lower_bound(sorted_.begin(), sorted_.end(), Range{read.end, nullptr}, by_begin);
    return behind != sorted_.begin() && (behind - 1)->end > read.begin;
  });
  if (are_apart) apart_from_ = read_;
  return are_apart;
}

void Updates::run() {
  const auto done = c10::make_scope_exit([&] { clear(); });
  if (items_.empty()) return;
  are_apart() ? run_together() : run_in_order();
}

void Updates::run_together() {
  for (KernelOf& kernel : kernels_) {
    if (!kernel.sets.numel.empty()) kernel.backend->run_foreach(kernel.body, *kernel.kernel, kernel.sets);
  }
  for (const auto& step : alone_) step();
}

// If a step throws, later steps do not run, but kernel updates do: their state has already counted them.
void Updates::run_in_order() {
  codegen::ForeachSets one;
  std::exception_ptr error;
  for (const Item& item : items_) {
    if (item.kernel == nullptr) {
      if (error != nullptr) continue;
      try {
        alone_[item.number]();
      } catch (...) {
        error = std::current_exception();
      }
      continue;
    }
    const auto& [device, memory, scalars, numel] = item.kernel->sets;
    const auto tensors = item.kernel->tensors.size();
    const auto first = memory.begin() + static_cast<std::ptrdiff_t>(item.number * tensors);
    one = {device, {first, first + static_cast<std::ptrdiff_t>(tensors)}, {scalars[item.number]}, {numel[item.number]}};
    item.kernel->backend->run_foreach(item.kernel->body, *item.kernel->kernel, one);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void Updates::clear() {
  for (KernelOf& kernel : kernels_) kernel.sets.clear();
  items_.clear();
  alone_.clear();
  scalars_.clear();
  written_.clear();
  read_.clear();
  factor_.reset();
}

}  // namespace hindcast::engine
