#include "codegen/cpu/kernel_call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

namespace hindcast::codegen {
namespace {

using capture::Env;
using capture::ExprId;

constexpr size_t kMaxRank = 8;
// Elements a thread takes at least: those of ATen for one op, fewer for a body of many.
constexpr int64_t kGrain = 32768;

// Tensors whose memory does not hold their values.
const c10::DispatchKeySet kLazyValues({c10::DispatchKey::Negative, c10::DispatchKey::Conjugate, c10::DispatchKey::ZeroTensor});

// One loop of the nest, with the bytes that each tensor steps.
struct Loop {
  int64_t size = 1;
  std::vector<int64_t> steps;
};

class KernelCall final : public OpCall {
 public:
  KernelCall(const Group& group, std::shared_ptr<const CpuKernel> kernel)
      : kernel_(std::move(kernel)),
        domain_(group.domain),
        order_(group.order),
        loads_(group.body.loads),
        scalars_(group.scalars),
        type_(group.body.compute),
        element_size_(static_cast<int64_t>(c10::elementSize(group.body.compute))),
        grain_(std::max<int64_t>(1, kGrain / static_cast<int64_t>(1 + group.body.ops.size() / 4))) {}

  void run(const Step& step, Slots& slots, const Env& env) const override {
    c10::SmallVector<int64_t, kMaxRank> sizes(domain_.size()), strides(domain_.size());
    int64_t numel = 1;
    for (size_t i = domain_.size(); i-- > 0;) {
      const uint8_t dim = order_[i];
      sizes[dim] = env.integer(domain_[dim]);
      strides[dim] = numel;
      numel *= std::max<int64_t>(sizes[dim], 1);
    }
    const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();

    c10::SmallVector<char*, 32> pointers;
    c10::SmallVector<at::Tensor, 16> results;
    for (const SlotUse use : step.inputs) {
      at::Tensor& tensor = slots[use.slot];
      if (C10_UNLIKELY(tensor.unsafeGetTensorImpl()->key_set().has_any(kLazyValues))) tensor = tensor.clone();
      pointers.push_back(static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())));
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      results.push_back(at::detail::empty_strided_cpu(sizes, strides, type_));
      pointers.push_back(static_cast<char*>(results.back().mutable_data_ptr()));
    }
    c10::SmallVector<double, 16> scalars;
    for (const capture::Arg& arg : scalars_) {
      scalars.push_back(arg.kind == capture::Arg::Kind::Float ? env.real(arg.exprs[0])
                        : arg.kind == capture::Arg::Kind::Int ? static_cast<double>(env.integer(arg.exprs[0]))
                                                              : arg.constant.toScalar().toDouble());
    }

    if (!empty) {
      if (is_one_loop(step, slots, sizes, strides, numel)) {
        run_dense(pointers, scalars.data(), numel);
      } else {
        run_nest(step, slots, sizes, strides, pointers, scalars.data());
      }
    }
    for (const SlotUse use : step.inputs) {
      if (use.last) slots[use.slot].reset();
    }
    for (size_t i = 0; i < results.size(); ++i) slots[step.outputs[i]] = std::move(results[i]);
  }

 private:
  // Every load lies in memory as the results do, or is one element.
  bool is_one_loop(const Step& step, const Slots& slots, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t numel) const {
    for (size_t i = 0; i < loads_.size(); ++i) {
      const at::Tensor& tensor = slots[step.inputs[i].slot];
      if (loads_[i].walk == Walk::Still ? tensor.numel() != 1 : numel != 1 && !(tensor.sizes() == sizes && tensor.strides() == strides))
        return false;
    }
    return true;
  }

  void run_dense(const c10::SmallVectorImpl<char*>& pointers, const double* scalars, int64_t numel) const {
    if (numel <= grain_) return kernel_->dense(pointers.data(), scalars, numel);
    at::parallel_for(0, numel, grain_, [&](int64_t begin, int64_t end) {
      c10::SmallVector<char*, 32> at(pointers.begin(), pointers.end());
      for (size_t i = 0; i < at.size(); ++i) {
        if (i >= loads_.size()) {
          at[i] += begin * element_size_;
        } else if (loads_[i].walk == Walk::Dense) {
          at[i] += begin * static_cast<int64_t>(c10::elementSize(loads_[i].type));
        }
      }
      kernel_->dense(at.data(), scalars, end - begin);
    });
  }

  void run_nest(const Step& step, const Slots& slots, at::IntArrayRef sizes, at::IntArrayRef strides,
                const c10::SmallVectorImpl<char*>& pointers, const double* scalars) const {
    std::vector<Loop> nest = make_nest(step, slots, sizes, strides, pointers.size());
    const Loop& inner = nest.back();
    bool as_captured = true;
    for (size_t i = 0; i < pointers.size(); ++i) {
      const int64_t dense = i < loads_.size() ? static_cast<int64_t>(c10::elementSize(loads_[i].type)) : element_size_;
      const bool still = i < loads_.size() && loads_[i].walk == Walk::Still;
      as_captured = as_captured && inner.steps[i] == (still ? 0 : dense);
    }
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < nest.size(); ++d) rows *= nest[d].size;
    at::parallel_for(0, rows, std::max<int64_t>(1, grain_ / inner.size), [&](int64_t begin, int64_t end) {
      c10::SmallVector<char*, 32> at(pointers.size());
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

  // The loops over the domain, outermost first, neighbours made one where all tensors step through both alike.
  std::vector<Loop> make_nest(const Step& step, const Slots& slots, at::IntArrayRef sizes, at::IntArrayRef strides, size_t tensors) const {
    std::vector<Loop> nest;
    for (const uint8_t dim : order_) {
      if (sizes[dim] == 1) continue;
      Loop loop{sizes[dim], {}};
      for (size_t i = 0; i < tensors; ++i) {
        int64_t step_bytes = strides[dim] * element_size_;
        if (i < loads_.size()) {
          const at::Tensor& tensor = slots[step.inputs[i].slot];
          const int64_t own = static_cast<int64_t>(dim) - (static_cast<int64_t>(sizes.size()) - tensor.dim());
          step_bytes = own < 0 || tensor.size(own) == 1 ? 0 : tensor.stride(own) * static_cast<int64_t>(tensor.element_size());
        }
        loop.steps.push_back(step_bytes);
      }
      if (!nest.empty()) {
        bool one = true;
        for (size_t i = 0; i < tensors; ++i) one = one && nest.back().steps[i] == loop.steps[i] * loop.size;
        if (one) {
          loop.size *= nest.back().size;
          nest.pop_back();
        }
      }
      nest.push_back(std::move(loop));
    }
    if (nest.empty()) nest.push_back({1, std::vector<int64_t>(tensors, 0)});
    return nest;
  }

  std::shared_ptr<const CpuKernel> kernel_;
  std::vector<ExprId> domain_;
  std::vector<uint8_t> order_;
  std::vector<BodyLoad> loads_;
  std::vector<capture::Arg> scalars_;
  at::ScalarType type_;
  int64_t element_size_, grain_;
};

}  // namespace

std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CpuKernel> kernel) {
  return std::make_unique<KernelCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen
