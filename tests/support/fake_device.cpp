#include "tests/support/fake_device.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "engine/collect_call.h"
#include "tests/support/fake_graph.h"
#include "tests/support/stream_model.h"

namespace hindcast::tests {
namespace {

constexpr int kDevices = 2;

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<int64_t, kDevices> current_stream{};

c10::Stream current_stream_of(at::Device device) {
  const int index = device.has_index() ? device.index() : current_device;
  return stream(static_cast<int>(current_stream[static_cast<size_t>(index)]), index);
}

std::atomic<int> recorded_events, waited_events;

// ---- memory

// What a DataPtr owns: LibTorch's own deleters get nothing else.
struct Memory {
  StreamModel::Block* block;
  char* begin;
  size_t size;
  uint64_t stream;
};

/// All memory of tensors, and the free memory of a caching allocator.
class Heap {
 public:
  static Heap& of_process() {
    static auto* heap = new Heap;
    return *heap;
  }
  Memory* take(size_t bytes, const c10::Stream& stream) {
    const size_t size = (bytes + 64) / 64 * 64;
    const std::lock_guard lock(mutex_);
    auto& free = free_[{stream.hash(), size}];
    char* begin = nullptr;
    if (!free.empty()) {
      begin = free.back();
      free.pop_back();
    } else {
      begin = static_cast<char*>(std::aligned_alloc(64, size));
    }
    std::memset(begin, 0xff, size);  // NaNs: a read of unwritten memory shows in the results
    auto* const memory = new Memory{StreamModel::of_process().allocate(stream, static_cast<int64_t>(bytes)), begin, size, stream.hash()};
    used_[begin] = memory;
    bytes_ += static_cast<int64_t>(size);
    return memory;
  }
  void give_back(Memory* memory) {
    const std::lock_guard lock(mutex_);
    StreamModel::of_process().free(memory->block);
    used_.erase(memory->begin);
    bytes_ -= static_cast<int64_t>(memory->size);
    if (caches_ != 0) {
      free_[{memory->stream, memory->size}].push_back(memory->begin);
    } else {
      std::free(memory->begin);
    }
    delete memory;
  }
  StreamModel::Block* block_of(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto behind = used_.upper_bound(static_cast<const char*>(address));
    if (behind == used_.begin()) return nullptr;
    const Memory& memory = *std::prev(behind)->second;
    return static_cast<const char*>(address) < memory.begin + memory.size ? memory.block : nullptr;
  }
  int64_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  void cache(int more) {
    const std::lock_guard lock(mutex_);
    caches_ += more;
    if (caches_ != 0) return;
    for (auto& [key, free] : free_) {
      for (char* begin : free) std::free(begin);
    }
    free_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<const char*, Memory*> used_;                             // by begin
  std::map<std::pair<uint64_t, size_t>, std::vector<char*>> free_;  // by stream and size
  int64_t bytes_ = 0;
  int caches_ = 0;
};

void give_back(void* context) { Heap::of_process().give_back(static_cast<Memory*>(context)); }

struct FakeAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (FakeGraph* const graph = FakeGraph::captured_now()) return graph->allocate(bytes);
    const at::Device device = fake(current_device);
    Memory* const memory = Heap::of_process().take(bytes, current_stream_of(device));
    return {memory->begin, memory, &give_back, device};
  }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};

FakeAllocator& allocator() {
  static auto* allocator = new FakeAllocator;
  return *allocator;
}

StreamModel::Block* block_of(const at::Tensor& tensor) {
  const c10::DataPtr& data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &give_back ? static_cast<Memory*>(data.get_context())->block : FakeGraph::block_of(data);
}

// ---- devices, streams, events

using Event = std::shared_ptr<const StreamModel::Clock>;

struct FakeGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return fake(current_device); }
  void setDevice(c10::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override { return current_stream_of(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(0, device.index()); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::Stream before = current_stream_of(next.device());
    current_stream[static_cast<size_t>(next.device_index())] = next.id();
    return before;
  }

  void record(void** event, const c10::Stream& on, const c10::DeviceIndex, const c10::EventFlag) const override {
    destroyEvent(*event, 0);
    *event = new Event(StreamModel::of_process().record_event(on));
    ++recorded_events;
  }
  void block(void* event, const c10::Stream& waits) const override {
    ++waited_events;
    if (event != nullptr) StreamModel::of_process().wait(waits, **static_cast<Event*>(event));
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& on) const override { StreamModel::of_process().synchronize(on); }
  void synchronizeDevice(c10::DeviceIndex) const override { StreamModel::of_process().synchronize_all(); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& on) const override {
    if (data.get_deleter() == &give_back) StreamModel::of_process().record_stream(*static_cast<Memory*>(data.get_context())->block, on);
  }
};

struct FakeHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
};

// ---- ops

bool is_fake(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == at::kPrivateUse1; }

// A CPU tensor over the same memory, which keeps `kept` alive.
at::Tensor on_cpu(const at::Tensor& tensor, c10::Storage kept) {
  const auto options = tensor.options().device(at::kCPU).requires_grad(false);
  at::Tensor alias = at::from_blob(
      tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get(), tensor.sizes(), tensor.strides(),
      tensor.storage_offset(), [keep = std::move(kept)](void*) {}, options);
  alias._set_conj(tensor.is_conj());
  alias._set_neg(tensor.is_neg());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  return alias;
}
at::Tensor on_cpu(const at::Tensor& tensor) { return is_fake(tensor) ? on_cpu(tensor, tensor.storage()) : tensor; }
// Only its address, as a graph keeps it.
at::Tensor at_address_of(const at::Tensor& tensor) { return on_cpu(tensor, {}); }

const void* address_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get(); }

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> device, std::optional<bool> /*pin_memory*/) {
  const c10::OptionalDeviceGuard guard(device);
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(sizes, strides, &allocator(), keys, at::dtype_or_default(dtype));
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device, std::optional<bool> /*pin_memory*/, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(sizes, &allocator(), keys, at::dtype_or_default(dtype), format);
}

/// One call, on CPU tensors over the device's memory.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(stack) {}

  void run() {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    take_arguments();
    if (graph_ != nullptr) frozen_.assign(stack_->end() - static_cast<std::ptrdiff_t>(op_.schema().arguments().size()), stack_->end());
    if (graph_ != nullptr) try_on_copies();
    op_.callBoxed(stack_);
    const size_t count = op_.schema().returns().size();
    bool has_number = false;
    for (size_t i = stack_->size() - count; i < stack_->size(); ++i) {
      has_number = has_number || !((*stack_)[i].isTensor() || (*stack_)[i].isTensorList());
      (*stack_)[i] = given_back((*stack_)[i]);
    }
    if (graph_ != nullptr) return capture(count, has_number);
    note_work();
    if (has_number) StreamModel::of_process().synchronize(current_stream_of(device_));  // the host has read it
  }

 private:
  void take_arguments() {
    const auto& arguments = op_.schema().arguments();
    const size_t first = stack_->size() - arguments.size();
    for (size_t i = 0; i < arguments.size(); ++i) {
      at::IValue& value = (*stack_)[first + i];
      const bool is_written = writes(arguments[i]);
      if (value.isTensor()) {
        value = take(value.toTensor(), is_written);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& one : value.toTensorVector()) list.push_back(take(one, is_written));
        value = std::move(list);
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const std::optional<at::Tensor>& one : value.toOptionalTensorVector()) {
          list.push_back(one ? std::optional(take(*one, is_written)) : std::nullopt);
        }
        value = std::move(list);
      } else if (value.isDevice()) {
        value = c10::Device(at::kCPU);
      }
    }
  }

  // For a list, its tensors count.
  static bool writes(const c10::Argument& argument) {
    const c10::AliasInfo* info = argument.alias_info();
    if (info == nullptr) return false;
    return info->isWrite() || std::any_of(info->containedTypes().begin(), info->containedTypes().end(),
                                          [](const c10::AliasInfo& contained) { return contained.isWrite(); });
  }

  at::Tensor take(const at::Tensor& tensor, bool is_written) {
    if (!is_fake(tensor)) return graph_ != nullptr && tensor.defined() ? value_of(tensor) : tensor;
    device_ = tensor.device();
    const bool is_to_grow = is_written && tensor.numel() == 0;  // an op's out argument
    if (is_to_grow && graph_ != nullptr) FakeGraph::refuse(c10::toString(op_.operator_name()));
    const at::Tensor alias = is_to_grow          ? at::empty({0}, tensor.options().device(at::kCPU))
                             : graph_ != nullptr ? at_address_of(tensor)
                                                 : on_cpu(tensor);
    given_.push_back({tensor, alias, is_written});
    return given_.back().alias;
  }

  // A graph keeps the present value of a host tensor.
  static at::Tensor value_of(const at::Tensor& tensor) {
    at::Tensor value = tensor.clone();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) value.unsafeGetTensorImpl()->set_wrapped_number(true);
    return value;
  }

  at::IValue given_back(const at::IValue& value) {
    if (value.isTensor()) return given_back(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& one : value.toTensorVector()) list.push_back(given_back(one));
    return list;
  }

  // An argument, a view of one, or a new tensor, for which the device allocates memory.
  at::Tensor given_back(const at::Tensor& result) {
    if (!result.defined()) return result;
    for (const Given& one : given_) {
      if (!result.is_same(one.alias)) continue;
      if (one.tensor.sizes() != result.sizes()) grow(one.tensor, result);
      return one.tensor;
    }
    for (const Given& one : given_) {
      if (!result.has_storage() || !result.is_alias_of(one.alias)) continue;
      at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(one.tensor.storage()),
                                                                 one.tensor.key_set(), result.dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
      view._set_conj(result.is_conj());
      view._set_neg(result.is_neg());
      views_ = true;
      return view;
    }
    made_.push_back(copy_of(result));
    return made_.back();
  }

  at::Tensor copy_of(const at::Tensor& result) const {
    at::Tensor made = empty_strided(result.sizes(), result.strides(), result.scalar_type(), {}, device_, {});
    on_cpu(made).copy_(result);
    return made;
  }

  void grow(const at::Tensor& tensor, const at::Tensor& result) const {
    const at::Tensor made = copy_of(result);
    tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(made.storage());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides());
  }

  // A capture runs nothing. A run on copies of the written arguments shows what the results look like.
  void try_on_copies() {
    for (Given& one : given_) {
      if (!one.is_written) continue;
      const at::Tensor copy = one.alias.clone();
      for (at::IValue& value : *stack_) {
        if (value.isTensor() && value.toTensor().is_same(one.alias)) value = copy;
        if (!value.isTensorList()) continue;
        c10::List<at::Tensor> list;
        for (const at::Tensor& each : value.toTensorVector()) list.push_back(each.is_same(one.alias) ? copy : each);
        value = std::move(list);
      }
      one.alias = copy;
    }
  }

  void capture(size_t count, bool has_number) {
    const std::string name = c10::toString(op_.operator_name());
    if (has_number) FakeGraph::refuse(name);
    if (views_ && made_.empty()) return;
    std::vector<const void*> reads, writes;
    for (const Given& one : given_) (one.is_written ? writes : reads).push_back(address_of(one.tensor));
    std::vector<at::Tensor> made;
    for (const at::Tensor& one : made_) {
      writes.push_back(address_of(one));
      std::memset(one.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get(), 0xff, one.storage().nbytes());
      made.push_back(at_address_of(one));
    }
    graph_->add({name, std::move(reads), std::move(writes), [op = op_, frozen = std::move(frozen_), made = std::move(made), count] {
                   torch::jit::Stack stack = frozen;
                   op.callBoxed(&stack);
                   size_t next = 0;
                   const auto keep = [&](const at::Tensor& result) {
                     const bool is_new = result.defined() && std::none_of(frozen.begin(), frozen.end(), [&](const at::IValue& value) {
                                           return value.isTensor() && value.toTensor().defined() && value.toTensor().is_alias_of(result);
                                         });
                     if (is_new && next < made.size()) made[next++].copy_(result);
                   };
                   for (size_t i = stack.size() - count; i < stack.size(); ++i) {
                     if (stack[i].isTensor()) {
                       keep(stack[i].toTensor());
                     } else if (stack[i].isTensorList()) {
                       for (const at::Tensor& one : stack[i].toTensorVector()) keep(one);
                     }
                   }
                 }});
  }

  void note_work() {
    if (views_ && made_.empty()) return;  // no work: nothing is read
    std::vector<StreamModel::Block*> reads, writes;
    for (const Given& one : given_) (one.is_written ? writes : reads).push_back(block_of(one.tensor));
    for (const at::Tensor& one : made_) writes.push_back(block_of(one));
    std::erase(reads, nullptr);
    std::erase(writes, nullptr);
    StreamModel::of_process().run(current_stream_of(device_), c10::toString(op_.operator_name()), reads, writes);
  }

  struct Given {
    at::Tensor tensor, alias;
    bool is_written;
  };
  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  FakeGraph* const graph_ = FakeGraph::captured_now();
  at::Device device_ = fake();
  torch::jit::Stack frozen_;  // the arguments of a captured call
  std::vector<Given> given_;
  std::vector<at::Tensor> made_;
  bool views_ = false;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, stack).run(); }

// Like CUDA: between two devices, on the stream of the source, which both sides wait for; from and to the host, the host waits.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool /*non_blocking*/) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  StreamModel& model = StreamModel::of_process();
  const c10::Stream works = current_stream_of(is_fake(from) ? from.device() : to.device());
  if (FakeGraph* const graph = FakeGraph::captured_now()) {
    if (!is_fake(from) || !is_fake(to)) FakeGraph::refuse("a copy from or to the host");
    graph->add({"aten::copy_", {address_of(from)}, {address_of(to)}, [to = at_address_of(to), from = at_address_of(from)] {
                  at::Tensor(to).copy_(from);
                }});
    return to;
  }
  const bool is_across = is_fake(from) && is_fake(to) && from.device() != to.device();
  if (is_across) model.order(current_stream_of(to.device()), works);
  on_cpu(to).copy_(on_cpu(from));
  std::vector<StreamModel::Block*> reads, writes;
  if (is_fake(from)) reads.push_back(block_of(from));
  if (is_fake(to)) writes.push_back(block_of(to));
  model.run(works, "aten::copy_", reads, writes);
  if (is_across) model.order(works, current_stream_of(to.device()));
  if (!is_fake(from) || !is_fake(to)) model.synchronize(works);
  return to;
}

// Permanently, like a library of its own.
void register_ops() {
  using torch::Library;
  static auto* const any = new Library(Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  any->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  static auto* const autocast = new Library(Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  autocast->fallback(torch::CppFunction::makeFallthrough());
  static auto* const aten = new Library(Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten->impl("empty.memory_format", TORCH_FN(empty));
  aten->impl("empty_strided", TORCH_FN(empty_strided));
  aten->impl("copy_", TORCH_FN(copy));
}

}  // namespace

void install_fake_device() {
  static const bool is_done = [] {
    c10::register_privateuse1_backend("fake");
    const c10::impl::DeviceGuardImplRegistrar guard(at::kPrivateUse1, new FakeGuard);
    register_ops();
    at::RegisterPrivateUse1HooksInterface(new FakeHooks);
    c10::SetAllocator(at::kPrivateUse1, &allocator());
    engine::take_device_of_tests(at::kPrivateUse1);
    return true;
  }();
  (void)is_done;
}

at::Tensor leaf(uint64_t seed, at::Device device, c10::IntArrayRef sizes) {
  auto numbers = at::randn(sizes, at::detail::createCPUGenerator(seed));
  return (device.is_cpu() ? numbers : numbers.to(device)).requires_grad_();
}

void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  later.wait(event);
}

std::string current_streams() {
  std::string text = "device " + std::to_string(current_device) + ", streams";
  for (const int64_t id : current_stream) text += " " + std::to_string(id);
  return text;
}

CachedFakeMemory::CachedFakeMemory() { Heap::of_process().cache(1); }
CachedFakeMemory::~CachedFakeMemory() { Heap::of_process().cache(-1); }

int64_t fake_bytes_in_use() { return Heap::of_process().bytes(); }

StreamModel::Block* block_of_fake_memory(const void* address) { return Heap::of_process().block_of(address); }

std::vector<std::string> take_unordered() { return StreamModel::of_process().take_unordered(); }

at::Tensor to_cpu(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach().to(at::kCPU) : tensor; }

void synchronize_fake_device() { StreamModel::of_process().synchronize_all(); }

EventCounts take_event_counts() { return {recorded_events.exchange(0), waited_events.exchange(0)}; }

}  // namespace hindcast::tests
