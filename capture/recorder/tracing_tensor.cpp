#include "capture/recorder/tracing_tensor.h"

#include "capture/recorder/libtorch_compat.h"
#include "capture/recorder/recorder.h"
#include "capture/recorder/storage_offset.h"
#include "capture/recorder/symbolic_strides.h"

#include <ATen/ScalarOps.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/VmapInterpreter.h>
#include <ATen/ops/full.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

namespace hindcast::capture {
namespace {

c10::DispatchKeySet keys_of(const at::Tensor& real) {
  return (real.key_set() - c10::autograd_dispatch_keyset - c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView)).add(kRecorderKey);
}

}  // namespace

c10::intrusive_ptr<TracingTensor> TracingTensor::make(at::Tensor real, ValueId id, std::shared_ptr<Base> base,
                                                      std::vector<c10::SymInt> sizes) {
  std::optional<c10::InferenceMode> normal;
  if (c10::InferenceMode::is_enabled() && !real.is_inference()) normal.emplace(false);
  return c10::make_intrusive<TracingTensor>(std::move(real), id, std::move(base), std::move(sizes));
}

TracingTensor::TracingTensor(at::Tensor real_tensor, ValueId id, std::shared_ptr<Base> shared_base, std::vector<c10::SymInt> symbolic_sizes)
    : TensorImpl(keys_of(real_tensor), real_tensor.dtype(), real_tensor.device()),
      real(std::move(real_tensor)),
      value(id),
      base(std::move(shared_base)),
      sizes(std::move(symbolic_sizes)) {
  set_storage_access_should_throw();
  show_geometry();
  const c10::TensorImpl& impl = *real.unsafeGetTensorImpl();
  if (impl.requires_grad()) set_requires_grad(true);  // some formulas branch on it
  if (impl.is_wrapped_number()) set_wrapped_number(true);
}

void TracingTensor::show_geometry() {
  set_custom_sizes_strides(SizesStridesPolicy::Default);
  if (real.layout() == at::kStrided) {
    set_sizes_and_strides(real.sizes(), real.strides(), real.storage_offset());
  } else {
    set_sizes_contiguous(real.sizes());
  }
  symbolic = std::any_of(sizes.begin(), sizes.end(), [](const c10::SymInt& size) { return size.is_symbolic(); });
  if (symbolic || watched_) {
    set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
  } else if (watches_strides_) {
    set_custom_sizes_strides(SizesStridesPolicy::CustomStrides);
  }
}

void TracingTensor::become(const TracingTensor& view) {
  real = view.real;
  value = view.value;
  base = view.base;
  views = view.views;
  view_values = view.view_values;
  version = view.version;
  sizes = view.sizes;
  strides_.clear();
  show_geometry();
}

void TracingTensor::become_plain() {
  symbolic = watched_ = watches_strides_ = false;
  sizes.clear();
  strides_.clear();
  show_geometry();
  storage_ = real.storage();
  storage_access_should_throw_ = false;
  key_set_ = key_set_.remove(kRecorderKey);
  base.reset();
  views.clear();
  view_values.clear();
  real.reset();
}

TracingTensor* TracingTensor::get(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kRecorderKey)) return nullptr;
  return dynamic_cast<TracingTensor*>(tensor.unsafeGetTensorImpl());
}

namespace {
std::atomic<const TracingTensor::Interpreter*> interpreter = nullptr;

bool is_interpreter_asking() {
  const auto* asking = interpreter.load(std::memory_order_acquire);
  return asking != nullptr && asking->is_asking();
}
bool has_symbol(const std::vector<c10::SymInt>& numbers) {
  return std::any_of(numbers.begin(), numbers.end(), [](const c10::SymInt& number) { return number.is_symbolic(); });
}
bool is_same(const c10::SymInt& a, const c10::SymInt& b) { return SymbolTable::contains(a, b) && SymbolTable::contains(b, a); }

// The size of the dim that vmap maps over; nullopt unless vmap is the innermost transform.
std::optional<c10::SymInt> size_of_vmap() {
  // Without this check, functorch would create its data of the thread, which LibTorch reads in later backwards, even at exit.
  if (!c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) return std::nullopt;
  const auto layer = at::functorch::maybeCurrentDynamicLayer();
  if (!layer || layer->key() != at::functorch::TransformType::Vmap) return std::nullopt;
  return at::functorch::VmapInterpreterPtr(&layer->interpreter()).batchSize();
}

// LibTorch's indexing of a 0-dim tensor reads one element past the end of its sizes. For an ordinary tensor that element is 0, and the
// index raises an IndexError. So sizes without elements point to these.
const c10::SymInt past_the_end = 0;
constexpr int64_t number_past_the_end = 0;

TracingTensor::Symbols which_symbols(const std::vector<c10::SymInt>& sizes) {
  if (!has_symbol(sizes) || !is_interpreter_asking()) return TracingTensor::Symbols::All;
  return interpreter.load(std::memory_order_acquire)->takes_symbols(sizes);
}
}  // namespace

void TracingTensor::give_numbers_to(const Interpreter& which) { interpreter.store(&which, std::memory_order_release); }

namespace {

// PyTorch's placeholders are 7777777 for a SymInt, NaN for a SymFloat, true for a SymBool; an attribute of the Python object has the
// symbol.
bool may_be_placeholder(const at::Tensor& number) {
  constexpr int64_t kOfInteger = 7777777;
  const void* const data = number.const_data_ptr();
  switch (number.scalar_type()) {
    case at::kLong:
      return *static_cast<const int64_t*>(data) == kOfInteger;
    case at::kDouble:
      return std::isnan(*static_cast<const double*>(data));
    case at::kBool:
      return *static_cast<const bool*>(data);
    default:
      return false;
  }
}

}  // namespace

at::Tensor TracingTensor::with_its_number(const at::Tensor& tensor, bool may_be_symbol) {
  const auto* const python = interpreter.load(std::memory_order_acquire);
  if (python == nullptr || !tensor.defined() || tensor.dim() != 0) return tensor;
  if (!tensor.unsafeGetTensorImpl()->is_wrapped_number() || get(tensor) != nullptr || !may_be_placeholder(tensor)) return tensor;
  const at::Scalar value = python->number_in_place_of(tensor);
  if (value.isSymbolic() && may_be_symbol) return at::full({}, value, at::TensorOptions(tensor.scalar_type()));
  const at::Scalar known = value.isSymbolic() ? at::Scalar(value.toSymInt().guard_int(__FILE__, __LINE__)) : value;
  at::Tensor number = at::detail::scalar_tensor_static(known, tensor.scalar_type(), at::kCPU);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

// While code is recorded, it gets the memory only if it may continue unrecorded: a program would not read the memory again. Outside of a
// recording, this is a tensor that a traced function has kept, and somebody reads it.
void TracingTensor::show_memory() const {
  if (!key_set_.has(kRecorderKey)) return;
  Recorder* const recorder = Recorder::current();
  if (recorder != nullptr) recorder->is_asked_for_memory();
  auto* const self = const_cast<TracingTensor*>(this);
  if (!key_set_.has(kRecorderKey)) return;  // it has become plain
  const bool is_shown = recorder == nullptr && real.has_storage();
  if (is_shown == static_cast<bool>(storage_)) return;
  self->storage_ = is_shown ? real.storage() : c10::Storage();
  self->storage_access_should_throw_ = !is_shown;
}

// Code that wants the memory calls this first.
bool TracingTensor::has_storage() const {
  show_memory();
  return static_cast<bool>(storage_);
}

const c10::Storage& TracingTensor::storage() const {
  show_memory();
  return TensorImpl::storage();
}

c10::SymIntArrayRef TracingTensor::traced_sizes() const { return sizes; }

// For a view that is not dense: its strides depend on sizes of its base that it may not have itself.
void TracingTensor::pin_strides() const {
  pin_sizes();
  Recorder* const recorder = Recorder::current();
  if (recorder != nullptr) recorder->pin_strides_of(*this);
}

void TracingTensor::pin_sizes() const {
  pinned_sizes_.clear();
  for (const c10::SymInt& size : sizes) pinned_sizes_.push_back(size.guard_int(__FILE__, __LINE__));
}
c10::IntArrayRef TracingTensor::sizes_custom() const {
  if (sizes.empty()) return {&number_past_the_end, size_t{0}};
  pin_sizes();
  return pinned_sizes_;
}
c10::IntArrayRef TracingTensor::strides_custom() const {
  if (real.is_non_overlapping_and_dense()) {
    pin_sizes();
  } else {
    pin_strides();
  }
  pinned_strides_ = real.strides().vec();
  return pinned_strides_;
}
int64_t TracingTensor::numel_custom() const {
  pin_sizes();
  return real.numel();
}
int64_t TracingTensor::dim_custom() const { return static_cast<int64_t>(sizes.size()); }
int64_t TracingTensor::size_custom(int64_t dim) const {
  return sizes[c10::maybe_wrap_dim(dim, dim_custom(), false)].guard_int(__FILE__, __LINE__);
}
// True in memory that an op made: at its start, or through views if all their numbers are the program's.
bool TracingTensor::knows_its_offset(const Recorder& recorder) const {
  return base->fresh && (views.empty() ? real.storage_offset() == 0 : recorder.has_plain_sizes());
}

int64_t TracingTensor::storage_offset_custom() const {
  Recorder* const recorder = Recorder::current();
  if (recorder != nullptr && !recorder->has_wrappers() && !knows_its_offset(*recorder)) recorder->refuse(kAsksForAnOffset);
  return real.storage_offset();
}

// functorch's wrappers take the sizes and strides of the tensor that they wrap. A wrapper with a symbol throws where ATen asks for plain
// sizes, as matmul() does, so wrappers get numbers. The dim that vmap maps over is not among a wrapper's, and stays a symbol.
const std::vector<c10::SymInt>& TracingTensor::sizes_under_vmap(const c10::SymInt& mapped) const {
  const bool is_unclear = std::count_if(sizes.begin(), sizes.end(), [&](const auto& size) { return is_same(size, mapped); }) > 1;
  size_numbers_.clear();
  for (const c10::SymInt& size : sizes) {
    const bool may_stay = !is_unclear && SymbolTable::contains(size, mapped);
    size_numbers_.push_back(may_stay ? size : c10::SymInt(size.guard_int(__FILE__, __LINE__)));
  }
  return size_numbers_;
}
const std::vector<c10::SymInt>& TracingTensor::strides_under_vmap(const c10::SymInt& mapped) const {
  stride_numbers_ = strides_;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (!is_same(sizes[dim], mapped)) stride_numbers_[dim] = stride_numbers_[dim].guard_int(__FILE__, __LINE__);
  }
  return stride_numbers_;
}

c10::SymIntArrayRef TracingTensor::sym_sizes_custom() const {
  if (sizes.empty()) return {&past_the_end, size_t{0}};
  if (const auto mapped = size_of_vmap(); mapped && has_symbol(sizes)) return sizes_under_vmap(*mapped);
  const Symbols which = which_symbols(sizes);
  const bool may_divide_by_zero = real.numel() == 0 && is_interpreter_asking();  // a symbol would raise another error than a number
  if (which == Symbols::All && !may_divide_by_zero) return sizes;
  size_numbers_.clear();
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    const c10::SymInt& size = sizes[dim];
    const bool is_zero = may_divide_by_zero && real.sizes()[dim] == 0;
    const bool is_symbol = !is_zero && (which == Symbols::All || (which == Symbols::Unsteady && !SymbolTable::is_steady(size)));
    size_numbers_.push_back(is_symbol ? size : c10::SymInt(size.guard_int(__FILE__, __LINE__)));
  }
  return size_numbers_;
}
c10::SymIntArrayRef TracingTensor::sym_strides_custom() const {
  // Where strides go is not followed through Python code, as sizes are: it gets numbers.
  if (symbolic && is_interpreter_asking()) {
    stride_numbers_.clear();
    for (const int64_t stride : strides_custom()) stride_numbers_.emplace_back(stride);
    return stride_numbers_;
  }
  if (strides_.empty() && !sizes.empty()) {
    strides_ = symbolic_strides(real.sizes(), real.strides(), sizes);
    if (strides_.empty()) {
      Recorder* const recorder = Recorder::current();
      if (recorder != nullptr) strides_ = recorder->strides_by_base(*this);
    }
    if (strides_.empty()) {
      pin_strides();
      for (const int64_t stride : real.strides()) strides_.emplace_back(stride);
    }
  }
  if (const auto mapped = size_of_vmap(); mapped && has_symbol(strides_)) return strides_under_vmap(*mapped);
  return strides_;
}
c10::SymInt TracingTensor::sym_numel_custom() const {
  if (which_symbols(sizes) != Symbols::All) return numel_custom();
  c10::SymInt numel = 1;
  for (const c10::SymInt& size : sizes) numel = numel * size;
  return numel;
}
c10::SymInt TracingTensor::sym_storage_offset_custom() const {
  Recorder* const recorder = Recorder::current();
  if (recorder == nullptr || is_interpreter_asking() || recorder->has_wrappers() || knows_its_offset(*recorder))
    return storage_offset_custom();
  return storage_offset_when_read(real.storage_offset());
}

// The layout class of an input is guarded, and what ATen derives from it depends on sizes only where they are 0 or 1.
void TracingTensor::separate_degenerate_sizes() const {
  for (const c10::SymInt& size : sizes) {
    const bool known = !size.is_symbolic() || size == 1 || size == 0;  // relations of this capture
    (void)known;
  }
}
c10::SymBool TracingTensor::sym_is_contiguous_custom(at::MemoryFormat format) const {
  separate_degenerate_sizes();
  return real.is_contiguous(format);
}
c10::SymBool TracingTensor::sym_is_non_overlapping_and_dense_custom() const {
  separate_degenerate_sizes();
  return real.is_non_overlapping_and_dense();
}
bool TracingTensor::is_strides_like_custom(at::MemoryFormat format) const {
  separate_degenerate_sizes();
  return real.unsafeGetTensorImpl()->is_strides_like(format);
}

c10::intrusive_ptr<c10::TensorImpl> TracingTensor::shallow_copy_and_detach(const c10::VariableVersion& counter, bool may_change) const {
  if (!key_set_.has(kRecorderKey)) return TensorImpl::shallow_copy_and_detach(counter, may_change);
  auto copy = make(real, value, base, sizes);
  copy->views = views;
  copy->view_values = view_values;
  copy->version = version;
  copy->lost_history = requires_grad();
  if (watches_strides_) copy->watch_strides();
  if (watched_) copy->watch_geometry();
  if (!copy->is_inference()) copy->set_version_counter(counter);
  copy->set_allow_tensor_metadata_change(may_change);
  if (Recorder* recorder = Recorder::current()) recorder->note_copy(copy);
  return copy;
}
c10::intrusive_ptr<c10::TensorImpl> TracingTensor::shallow_copy_and_detach(c10::VariableVersion&& counter, bool may_change) const {
  const c10::VariableVersion& named = counter;  // otherwise this would call itself
  return shallow_copy_and_detach(named, may_change);
}

}  // namespace hindcast::capture
