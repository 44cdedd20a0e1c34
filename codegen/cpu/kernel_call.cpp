#include "codegen/cpu/kernel_call.h"

#include "codegen/cpu/launch.h"
#include "codegen/cpu/leaf_writes.h"
#include "codegen/cpu/parallel.h"
#include "codegen/cpu/row_call.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hindcast::codegen {
namespace {

using capture::Env;

template <class T, T kValue>
constexpr auto kBlockOf = [] {
  std::array<T, kBlockLength> block{};
  block.fill(kValue);
  return block;
}();

class KernelCall final : public OpCall {
 public:
  KernelCall(const Group& group, std::shared_ptr<const CpuKernel> kernel)
      : kernel_(std::move(kernel)), group_(group), scalars_(group.scalars), loads_(group.loads.size()), grain_(grain_of(group.body)) {
    for (const BodyLoad& load : group.body.loads) element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(load.type)));
    for (const BodyStore& store : group.body.stores) element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(store.type)));
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
    const bool one_loop = !empty && is_one_loop(step, slots, sizes, strides, numel);
    const auto layout_of = [&](size_t store) -> ResultLayout {
      const at::ScalarType type = group_.body.stores[store].type;
      if (has_shape_of_domain_[store]) return {sizes, strides, type};
      const Ints shape = sizes_of(group_.shapes[store], env);  // of another one: both are contiguous
      return {shape, row_major_strides(shape), type};
    };
    const LeafWrites leaves(group_, step, slots, layout_of);
    ResultMemory memory(step, slots, one_loop ? loads_ : 0);
    c10::SmallVector<at::Tensor, 16> results;
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (one_loop && leaves.is_only_added(i)) {
        results.emplace_back();
      } else if (has_shape_of_domain_[i]) {
        results.push_back(memory.make(sizes, strides, group_.body.stores[i].type));
      } else {
        const ResultLayout layout = layout_of(i);
        results.push_back(memory.make(layout.sizes, layout.strides, layout.type));
      }
    }
    const auto scalars = scalars_.values(env);

    if (one_loop && kernel_->leaves && !leaves.empty()) {
      run_leaves(step, slots, results, scalars.data(), numel, leaves);
    } else if (one_loop) {
      run_dense(step, slots, results, scalars.data(), numel, leaves);
    } else if (!empty) {
      run_nest(step, slots, sizes, strides, results, scalars.data(), env);
      for (size_t i = 0; i < results.size(); ++i) leaves.write(i, memory_of(results[i]), 0, results[i].numel());
    }
    for (const SlotUse use : step.inputs) {
      if (use.last) slots[use.slot].reset();
    }
    for (size_t i = 0; i < results.size(); ++i) slots[step.outputs[i]] = std::move(results[i]);
  }

  bool writes_leaves() const override { return true; }
  std::string describe() const override { return describe_kernel(group_); }

 private:
  static char* memory_of(const at::Tensor& tensor) { return static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())); }
  bool is_still(size_t i) const { return i < loads_ && group_.body.loads[i].walk == Walk::Still; }

  // Every load lies in memory as the results do, or is one element.
  bool is_one_loop(const Step& step, const Slots& slots, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t numel) const {
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

  void run_dense(const Step& step, const Slots& slots, c10::ArrayRef<at::Tensor> results, const double* scalars, int64_t numel,
                 const LeafWrites& leaves) const {
    Pointers pointers;
    int64_t unstored = 0;  // results without memory
    for (size_t i = 0; i < loads_; ++i) pointers.push_back(memory_of(slots[step.inputs[i].slot]));
    for (const at::Tensor& result : results) {
      pointers.push_back(result.defined() ? memory_of(result) : nullptr);
      if (!result.defined()) ++unstored;
    }
    run_ranges(numel, grain_, [&](int64_t begin, int64_t end) {
      const int64_t length = leaves.empty() ? end - begin : std::min(end - begin, kCachedPart);
      std::vector<char> values(static_cast<size_t>(unstored * length) * sizeof(double));
      for (int64_t part = begin; part < end; part += length) {
        const int64_t count = std::min(end - part, length);
        Pointers at(pointers.begin(), pointers.end());
        char* free = values.data();
        for (size_t i = 0; i < at.size(); ++i) {
          if (at[i] == nullptr) {
            at[i] = std::exchange(free, free + count * element_sizes_[i]);
          } else if (!is_still(i)) {
            at[i] += part * element_sizes_[i];
          }
        }
        kernel_->dense(at.data(), scalars, count);
        if (leaves.empty()) continue;
        for (size_t i = loads_; i < at.size(); ++i) leaves.write(i - loads_, at[i], part, count);
      }
    });
  }

  // The kernel writes to leaves itself. It writes what nobody wants to a block that nobody reads, and adds a block of zeros
  // where a leaf has nothing yet.
  void run_leaves(const Step& step, const Slots& slots, c10::ArrayRef<at::Tensor> results, const double* scalars, int64_t numel,
                  const LeafWrites& leaves) const {
    Pointers pointers;
    for (size_t i = 0; i < loads_; ++i) pointers.push_back(memory_of(slots[step.inputs[i].slot]));
    c10::SmallVector<long, 32> is_block;
    c10::SmallVector<int64_t, 32> sizes(element_sizes_.begin(), element_sizes_.end());
    const auto add_pointer = [&](char* pointer, bool block) {
      pointers.push_back(pointer);
      is_block.push_back(block ? 1 : 0);
    };
    for (const at::Tensor& result : results) add_pointer(result.defined() ? memory_of(result) : nullptr, !result.defined());
    const auto* write = leaves.writes().begin();
    for (size_t i = 0; i < group_.leaves.size(); ++i) {
      const BodyStore& store = group_.body.stores[group_.leaves[i].store];
      if (store.leaves == 0) continue;
      const bool is_wanted = write != leaves.writes().end() && write->leaf == i;
      const bool adds = is_wanted && write->adds;
      add_pointer(is_wanted ? write->memory : nullptr, !is_wanted);
      add_pointer(adds ? write->memory : static_cast<char*>(const_cast<void*>(negative_zeros(store.type))), !adds);
      sizes.append(2, static_cast<int64_t>(c10::elementSize(store.type)));
      if (is_wanted) ++write;
    }
    run_ranges(numel, grain_, [&](int64_t begin, int64_t end) {
      alignas(64) std::array<char, kBlockLength * sizeof(double)> unread;
      Pointers at(pointers.begin(), pointers.end());
      for (size_t i = 0; i < at.size(); ++i) {
        if (at[i] == nullptr) {
          at[i] = unread.data();
        } else if (!is_still(i) && (i < loads_ || is_block[i - loads_] == 0)) {
          at[i] += begin * sizes[i];
        }
      }
      kernel_->leaves(at.data(), scalars, end - begin, is_block.data());
    });
  }

  // -0 + x is x to the bit, also where x is a zero.
  static const void* negative_zeros(at::ScalarType type) {
    switch (type) {
      case at::ScalarType::Float:
        return kBlockOf<float, -0.0F>.data();
      case at::ScalarType::Double:
        return kBlockOf<double, -0.0>.data();
      default:
        return kBlockOf<uint16_t, 0x8000>.data();  // bfloat16, float16
    }
  }

  void run_nest(const Step& step, Slots& slots, at::IntArrayRef sizes, at::IntArrayRef strides, c10::ArrayRef<at::Tensor> results,
                const double* scalars, const Env& env) const {
    c10::SmallVector<Ints, 16> steps;
    c10::SmallVector<at::Tensor, 16> tensors;
    Pointers pointers;
    for (size_t i = 0; i < loads_; ++i) {
      tensors.push_back(slots[step.inputs[i].slot]);
      steps.push_back(steps_of(tensors.back(), group_.accesses[i], sizes, env));
      pointers.push_back(memory_of(tensors.back()));
    }
    for (const at::Tensor& result : results) {
      Ints& own = steps.emplace_back(strides.begin(), strides.end());
      for (int64_t& bytes : own) bytes *= static_cast<int64_t>(result.element_size());
      pointers.push_back(memory_of(result));
    }
    const auto nest = make_nest(sizes, group_.order, steps);
    const Loop& inner = nest.back();
    bool as_captured = true;
    for (size_t i = 0; i < pointers.size(); ++i) as_captured = as_captured && inner.steps[i] == (is_still(i) ? 0 : element_sizes_[i]);
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < nest.size(); ++d) rows *= nest[d].size;
    run_ranges(rows, std::max<int64_t>(1, grain_ / inner.size), [&](int64_t begin, int64_t end) {
      Pointers at(pointers.size());
      for (int64_t row = begin; row < end; ++row) {
        std::copy(pointers.begin(), pointers.end(), at.begin());
        int64_t rest = row;
        for (size_t d = nest.size() - 1; d-- > 0;) {
          const int64_t index = rest % nest[d].size;
          rest /= nest[d].size;
          for (size_t i = 0; i < at.size(); ++i) at[i] += index * nest[d].steps[i];
        }
        if (as_captured) {
          kernel_->dense(at.data(), scalars, inner.size);
        } else {
          kernel_->strided(at.data(), scalars, inner.size, inner.steps.data());
        }
      }
    });
  }

  std::shared_ptr<const CpuKernel> kernel_;
  const Group group_;
  const ScalarArgs scalars_;
  const size_t loads_;
  std::vector<int64_t> element_sizes_;
  std::vector<bool> has_shape_of_domain_;  // by store
  const int64_t grain_;
  const bool is_in_order_ = std::is_sorted(group_.order.begin(), group_.order.end());
};

}  // namespace

std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CpuKernel> kernel) {
  if (group.body.by_rows) return make_row_call(group, std::move(kernel));
  return std::make_unique<KernelCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen
