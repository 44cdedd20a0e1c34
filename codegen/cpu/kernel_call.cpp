#include "codegen/cpu/kernel_call.h"

#include "codegen/cpu/call_frame.h"
#include "codegen/cpu/leaf_writes.h"
#include "codegen/cpu/loop_nest.h"
#include "codegen/cpu/parallel.h"
#include "codegen/cpu/row_call.h"
#include "codegen/cpu/nontemporal_stores.h"

#include <algorithm>
#include <array>

namespace hindcast::codegen::cpu {
namespace {

class KernelCall final : public CallFrame {
 public:
  KernelCall(const Group& group, std::shared_ptr<const CpuKernel> kernel) : CallFrame(group, std::move(kernel)) {
    for (const BodyLoad& load : group.body.loads) element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(load.type)));
    for (const BodyStore& store : group.body.stores) element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(store.type)));
    for (size_t i = 0; i < element_sizes_.size(); ++i) widths_.push_back(is_still(i) ? 0 : element_sizes_[i]);
    for (const Access& access : group.accesses) reads_padded_ = reads_padded_ || !access.offsets.empty();
    for (const auto& shape : group.shapes) has_shape_of_domain_.push_back(shape == group.domain);
  }

 private:
  void lay_out(Call& call) const override {
    call.strides.resize(call.domain.size());
    for (size_t i = call.domain.size(); i-- > 0;) {
      const uint8_t axis = group_.order[i];
      call.strides[axis] = call.numel;
      call.numel *= std::max<int64_t>(call.domain[axis], 1);
    }
    call.is_one_loop = !is_empty(call) && call.concats.are_dense() && is_one_loop(call);
  }

  ResultLayout layout_of(const Call& call, size_t store) const override {
    const at::ScalarType type = group_.body.stores[store].type;
    if (has_shape_of_domain_[store]) return {call.domain, call.strides, type};
    const Ints shape = sizes_of(group_.shapes[store], call.env);  // of another one: both are contiguous
    return {shape, row_major_strides(shape), type};
  }

  bool may_take_input(const Call& call, size_t /*store*/) const override { return call.is_one_loop; }
  bool can_write_leaves(const Call& call) const override { return call.is_one_loop && kernel_->leaves != nullptr; }

  void launch(Call& call) const override {
    if (call.leaves != nullptr) return run_leaves(call);
    if (call.is_one_loop) return run_dense(call);
    if (!is_empty(call)) run_nest(call);
  }

  static bool is_empty(const Call& call) { return std::find(call.domain.begin(), call.domain.end(), 0) != call.domain.end(); }
  bool is_still(size_t i) const { return i < loads_ && group_.body.loads[i].pattern == AccessPattern::Still; }

  // Every load lies in memory as the results do, or is one element.
  bool is_one_loop(const Call& call) const {
    const at::IntArrayRef sizes = call.domain, strides = call.strides;
    const int64_t numel = call.numel;
    if (reads_padded_) return false;
    for (size_t i = 0; i < loads_; ++i) {
      const at::Tensor& tensor = call.load(i);
      if (is_still(i)) {
        if (tensor.numel() != 1) return false;
      } else if (group_.accesses[i].sizes.empty() && tensor.sizes() == sizes) {
        if (numel != 1 && tensor.strides() != strides) return false;
      } else if (tensor.numel() != numel || !tensor.is_contiguous() || !is_in_order_) {
        return false;
      }
    }
    return true;
  }

  void run_dense(const Call& call) const {
    Pointers pointers;
    for (size_t i = 0; i < loads_; ++i) pointers.push_back(memory_of(call.load(i)));
    for (const at::Tensor& result : call.results) pointers.push_back(memory_of(result));
    for (const Concats::Part& part : call.concats.parts()) pointers.push_back(part.memory);
    run_pieces(call.numel, nontemporal_of(call.results, pointers), [&](int64_t begin, int64_t count, NontemporalStores::Block& block) {
      Pointers at(pointers.begin(), pointers.end());
      for (size_t i = 0; i < at.size(); ++i) {
        if (!is_still(i)) at[i] += begin * element_sizes_[i];
      }
      block.take_place_of(at);
      kernel_->dense(at.data(), call.scalars.data(), count);
    });
  }

  NontemporalStores nontemporal_of(c10::ArrayRef<at::Tensor> results, const Pointers& pointers) const {
    NontemporalStores nontemporal;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].defined() && NontemporalStores::are_worth_it(static_cast<int64_t>(results[i].nbytes())))
        nontemporal.add_new(pointers, loads_, loads_ + i, element_sizes_[loads_ + i]);
    }
    return nontemporal;
  }

  // All of the elements, shared out by threads; nontemporal stores by pieces that begin where lines of memory do.
  template <class Run>
  void run_pieces(int64_t numel, const NontemporalStores& nontemporal, Run run) const {
    run_ranges(numel, grain_, [&](int64_t begin, int64_t end) {
      NontemporalStores::Block block(nontemporal, kNontemporalAtOnce);
      while (begin < end) {
        const int64_t most = nontemporal.empty() ? end - begin : kNontemporalAtOnce - begin % kNontemporalAtOnce;
        const int64_t count = std::min(most, end - begin);
        run(begin, count, block);
        block.write(count);
        begin += count;
      }
    });
  }

  void run_leaves(const Call& call) const {
    Pointers pointers;
    c10::SmallVector<long, 32> is_block;
    c10::SmallVector<int64_t, 32> sizes(element_sizes_.begin(), element_sizes_.end());
    for (size_t i = 0; i < loads_; ++i) pointers.push_back(memory_of(call.load(i)));
    for (const at::Tensor& result : call.results) {
      pointers.push_back(result.defined() ? memory_of(result) : nullptr);
      is_block.push_back(result.defined() ? 0 : 1);
    }
    for (const Concats::Part& part : call.concats.parts()) {
      pointers.push_back(part.memory);
      is_block.push_back(0);
    }
    const LeafPointers leaf_pointers(group_, *call.leaves, kBlockLength);
    NontemporalStores nontemporal = nontemporal_of(call.results, pointers);
    for (const LeafPointers::Pointer& pointer : leaf_pointers.all()) {
      const int64_t width = element_sizes_[loads_ + pointer.store];
      if (pointer.is_new && NontemporalStores::are_worth_it(call.numel * width)) nontemporal.add(pointers.size(), width);
      pointers.push_back(pointer.memory);
      is_block.push_back(pointer.is_tensor ? 0 : 1);
      sizes.push_back(width);
    }
    run_pieces(call.numel, nontemporal, [&](int64_t begin, int64_t count, NontemporalStores::Block& block) {
      alignas(64) std::array<char, kBlockLength * sizeof(double)> unread;
      Pointers at(pointers.begin(), pointers.end());
      for (size_t i = 0; i < at.size(); ++i) {
        if (at[i] == nullptr) {
          at[i] = unread.data();
        } else if (!is_still(i) && (i < loads_ || is_block[i - loads_] == 0)) {
          at[i] += begin * sizes[i];
        }
      }
      block.take_place_of(at);
      kernel_->leaves(at.data(), call.scalars.data(), count, is_block.data());
    });
  }

  void run_nest(const Call& call) const {
    c10::SmallVector<Ints, 16> steps;
    c10::SmallVector<Spans, 4> spans;
    if (reads_padded_) spans.resize(element_sizes_.size());
    c10::SmallVector<at::Tensor, 16> tensors;
    Pointers pointers;
    for (size_t i = 0; i < loads_; ++i) {
      tensors.push_back(call.load(i));
      const Access& access = group_.accesses[i];
      if (const auto padding = access.offsets.empty() ? std::nullopt : place_padded(tensors.back(), access, call.domain, call.env)) {
        steps.push_back(padding->steps);
        spans[i] = padding->spans;
        pointers.push_back(memory_of(tensors.back()) + padding->first);
        continue;
      }
      steps.push_back(steps_of(tensors.back(), access, call.domain, call.env));
      pointers.push_back(memory_of(tensors.back()));
    }
    for (const at::Tensor& result : call.results) {
      Ints& own = steps.emplace_back(call.strides.begin(), call.strides.end());
      for (int64_t& bytes : own) bytes *= static_cast<int64_t>(result.element_size());
      pointers.push_back(memory_of(result));
    }
    for (const Concats::Part& part : call.concats.parts()) {
      steps.push_back(part.steps);
      pointers.push_back(part.memory);
    }
    const auto nest = make_nest(call.domain, group_.order, steps, spans);
    cpu::run_nest(kernel_->dense, nest, pointers, widths_, call.scalars.data(), grain_);
  }

  std::vector<int64_t> element_sizes_;
  std::vector<int64_t> widths_;            // how far the kernel goes from one element to the next
  std::vector<bool> has_shape_of_domain_;  // by store
  bool reads_padded_ = false;
  const bool is_in_order_ = std::is_sorted(group_.order.begin(), group_.order.end());
};

}  // namespace

std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CpuKernel> kernel) {
  if (group.body.by_rows) return make_row_call(group, std::move(kernel));
  return std::make_unique<KernelCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen::cpu
