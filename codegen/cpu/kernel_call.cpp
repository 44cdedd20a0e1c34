#include "codegen/cpu/kernel_call.h"

#include "codegen/kernel/concats.h"
#include "codegen/kernel/launch_args.h"
#include "codegen/kernel/leaf_requests.h"
#include "codegen/cpu/loop_nest.h"
#include "codegen/cpu/parallel.h"
#include "codegen/cpu/row_call.h"
#include "codegen/cpu/nontemporal_stores.h"

#include <algorithm>
#include <array>

namespace hindcast::codegen {
namespace {

using capture::Env;

class KernelCall final : public OpCall {
 public:
  KernelCall(const Group& group, std::shared_ptr<const CpuKernel> kernel)
      : kernel_(std::move(kernel)), group_(group), scalars_(group.scalars), loads_(group.loads.size()), grain_(grain_of(group.body)) {
    for (const BodyLoad& load : group.body.loads) element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(load.type)));
    for (const BodyStore& store : group.body.stores) element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(store.type)));
    for (size_t i = 0; i < element_sizes_.size(); ++i) widths_.push_back(is_still(i) ? 0 : element_sizes_[i]);
    for (const Access& access : group.accesses) reads_padded_ = reads_padded_ || !access.offsets.empty();
    for (const auto& shape : group.shapes) has_shape_of_domain_.push_back(shape == group.domain);
  }

  void run(const Step& step, Slots& slots, const Env& env) const override {
    const Ints sizes = sizes_of(group_.domain, env);
    Ints strides(sizes.size());
    int64_t numel = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      const uint8_t axis = group_.order[i];
      strides[axis] = numel;
      numel *= std::max<int64_t>(sizes[axis], 1);
    }
    const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();

    for (size_t i = 0; i < loads_; ++i) make_plain(slots[step.inputs[i].slot]);
    Concats concats(group_, sizes, env);
    const bool one_loop = !empty && concats.are_dense() && is_one_loop(step, slots, sizes, strides, numel);
    const auto layout_of = [&](size_t store) -> ResultLayout {
      const at::ScalarType type = group_.body.stores[store].type;
      if (has_shape_of_domain_[store]) return {sizes, strides, type};
      const Ints shape = sizes_of(group_.shapes[store], env);  // of another one: both are contiguous
      return {shape, row_major_strides(shape), type};
    };
    const LeafWrites leaves(group_, step, slots, layout_of);
    ResultMemory memory(step, slots, one_loop ? loads_ : 0);
    const bool to_leaves = one_loop && kernel_->leaves && !leaves.empty();
    c10::SmallVector<at::Tensor, 16> results;
    for (size_t i = 0; i < group_.stores.size(); ++i) {
      if (to_leaves && group_.body.stores[i].leaves != 0 && leaves.is_only_added(i)) {
        results.emplace_back();
      } else if (has_shape_of_domain_[i]) {
        results.push_back(memory.make(sizes, strides, group_.body.stores[i].type));
      } else {
        const ResultLayout layout = layout_of(i);
        results.push_back(memory.make(layout.sizes, layout.strides, layout.type));
      }
    }
    const auto scalars = scalars_.values(env);

    if (to_leaves) {
      run_to_leaves(step, slots, results, concats.parts(), scalars.data(), numel, leaves);
      for (size_t i = 0; i < results.size(); ++i) {
        if (group_.body.stores[i].leaves == 0) leaves.write(i, results[i]);
      }
    } else {
      if (one_loop) {
        run_dense(step, slots, results, concats.parts(), scalars.data(), numel);
      } else if (!empty) {
        run_nest(step, slots, sizes, strides, results, concats.parts(), scalars.data(), env);
      }
      for (size_t i = 0; i < results.size(); ++i) leaves.write(i, results[i]);
    }
    for (const SlotUse use : step.inputs) {
      if (use.last) slots[use.slot].reset();
    }
    for (size_t i = 0; i < results.size(); ++i) slots[step.outputs[i]] = std::move(results[i]);
    for (size_t i = 0; i < group_.concats.size(); ++i) slots[step.outputs[results.size() + i]] = concats.take(i);
  }

  bool writes_leaves() const override { return true; }
  std::string describe() const override { return describe_kernel(group_); }
  size_t footprint() const override { return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()); }

 private:
  static char* memory_of(const at::Tensor& tensor) { return static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())); }
  bool is_still(size_t i) const { return i < loads_ && group_.body.loads[i].walk == Walk::Still; }

  // Every load lies in memory as the results do, or is one element.
  bool is_one_loop(const Step& step, const Slots& slots, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t numel) const {
    if (reads_padded_) return false;
    for (size_t i = 0; i < loads_; ++i) {
      const at::Tensor& tensor = slots[step.inputs[i].slot];
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

  using Parts = c10::ArrayRef<Concats::Part>;

  void run_dense(const Step& step, const Slots& slots, c10::ArrayRef<at::Tensor> results, Parts parts, const double* scalars,
                 int64_t numel) const {
    Pointers pointers;
    for (size_t i = 0; i < loads_; ++i) pointers.push_back(memory_of(slots[step.inputs[i].slot]));
    for (const at::Tensor& result : results) pointers.push_back(memory_of(result));
    for (const Concats::Part& part : parts) pointers.push_back(part.memory);
    run_pieces(numel, nontemporal_of(results, pointers), [&](int64_t begin, int64_t count, NontemporalStores::Block& block) {
      Pointers at(pointers.begin(), pointers.end());
      for (size_t i = 0; i < at.size(); ++i) {
        if (!is_still(i)) at[i] += begin * element_sizes_[i];
      }
      block.take_place_of(at);
      kernel_->dense(at.data(), scalars, count);
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

  void run_to_leaves(const Step& step, const Slots& slots, c10::ArrayRef<at::Tensor> results, Parts parts, const double* scalars,
                     int64_t numel, const LeafWrites& leaves) const {
    Pointers pointers;
    c10::SmallVector<long, 32> is_block;
    c10::SmallVector<int64_t, 32> sizes(element_sizes_.begin(), element_sizes_.end());
    for (size_t i = 0; i < loads_; ++i) pointers.push_back(memory_of(slots[step.inputs[i].slot]));
    for (const at::Tensor& result : results) {
      pointers.push_back(result.defined() ? memory_of(result) : nullptr);
      is_block.push_back(result.defined() ? 0 : 1);
    }
    for (const Concats::Part& part : parts) {
      pointers.push_back(part.memory);
      is_block.push_back(0);
    }
    const LeafPointers leaf_pointers(group_, leaves, kBlockLength);
    NontemporalStores nontemporal = nontemporal_of(results, pointers);
    for (const LeafPointers::Pointer& pointer : leaf_pointers.all()) {
      const int64_t width = element_sizes_[loads_ + pointer.store];
      if (pointer.is_new && NontemporalStores::are_worth_it(numel * width)) nontemporal.add(pointers.size(), width);
      pointers.push_back(pointer.memory);
      is_block.push_back(pointer.is_tensor ? 0 : 1);
      sizes.push_back(width);
    }
    run_pieces(numel, nontemporal, [&](int64_t begin, int64_t count, NontemporalStores::Block& block) {
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
      kernel_->leaves(at.data(), scalars, count, is_block.data());
    });
  }

  void run_nest(const Step& step, Slots& slots, at::IntArrayRef sizes, at::IntArrayRef strides, c10::ArrayRef<at::Tensor> results,
                Parts parts, const double* scalars, const Env& env) const {
    c10::SmallVector<Ints, 16> steps;
    c10::SmallVector<Spans, 4> spans;
    if (reads_padded_) spans.resize(element_sizes_.size());
    c10::SmallVector<at::Tensor, 16> tensors;
    Pointers pointers;
    for (size_t i = 0; i < loads_; ++i) {
      tensors.push_back(slots[step.inputs[i].slot]);
      const Access& access = group_.accesses[i];
      if (const auto padding = access.offsets.empty() ? std::nullopt : place_padded(tensors.back(), access, sizes, env)) {
        steps.push_back(padding->steps);
        spans[i] = padding->spans;
        pointers.push_back(memory_of(tensors.back()) + padding->first);
        continue;
      }
      steps.push_back(steps_of(tensors.back(), access, sizes, env));
      pointers.push_back(memory_of(tensors.back()));
    }
    for (const at::Tensor& result : results) {
      Ints& own = steps.emplace_back(strides.begin(), strides.end());
      for (int64_t& bytes : own) bytes *= static_cast<int64_t>(result.element_size());
      pointers.push_back(memory_of(result));
    }
    for (const Concats::Part& part : parts) {
      steps.push_back(part.steps);
      pointers.push_back(part.memory);
    }
    const auto nest = make_nest(sizes, group_.order, steps, spans);
    codegen::run_nest(kernel_->dense, nest, pointers, widths_, scalars, grain_);
  }

  std::shared_ptr<const CpuKernel> kernel_;
  const Group group_;
  const ScalarArgs scalars_;
  const size_t loads_;
  std::vector<int64_t> element_sizes_;
  std::vector<int64_t> widths_;            // how far the kernel goes from one element to the next
  std::vector<bool> has_shape_of_domain_;  // by store
  bool reads_padded_ = false;
  const int64_t grain_;
  const bool is_in_order_ = std::is_sorted(group_.order.begin(), group_.order.end());
};

}  // namespace

std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CpuKernel> kernel) {
  if (group.body.by_rows) return make_row_call(group, std::move(kernel));
  return std::make_unique<KernelCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen
