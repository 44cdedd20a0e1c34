#include "codegen/cpu/kernel_call.h"

#include "codegen/cpu/leaf_writes.h"
#include "codegen/cpu/loop_nest.h"
#include "codegen/cpu/nontemporal_stores.h"
#include "codegen/cpu/parallel.h"
#include "codegen/cpu/prepared_kernel.h"
#include "codegen/cpu/product_call.h"
#include "codegen/cpu/results.h"
#include "codegen/cpu/row_call.h"
#include "codegen/kernel/pointwise_frame.h"

#include <algorithm>
#include <array>

namespace hindcast::codegen::cpu {
namespace {

class KernelCall final : public PointwiseFrame {
 public:
  KernelCall(const Group& group, std::shared_ptr<const CpuKernel> kernel)
      : PointwiseFrame(group, result_maker()), kernel_(std::move(kernel)), grain_(grain_of(group.body)) {
    for (size_t i = 0; i < element_sizes_.size(); ++i) widths_.push_back(is_broadcast(i) ? 0 : element_sizes_[i]);
  }
  size_t footprint() const override { return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()); }

  // Only calls that run on one thread are prepared.
  std::unique_ptr<const PreparedCall> prepare(const Step& step, Slots& slots, const capture::Env& env) const override {
    if (!may_be_prepared(step, slots)) return nullptr;
    Call call(step, slots, env, *this);
    lay_out(call);
    if (call.numel > grain_ || !may_be_prepared(call)) return nullptr;
    if (call.is_one_loop) return std::make_unique<PreparedLoop>(*this, call);
    make_unread_results(call);
    const Nest nest = nest_of(call);
    for (size_t i = 0; i < loads_; ++i) {
      if (!nest.loads[i].is_same(call.load(i))) return nullptr;
    }
    return std::make_unique<PreparedNest>(*this, call, nest);
  }

 private:
  class PreparedLoop final : public PreparedKernel {
   public:
    PreparedLoop(const KernelCall& of, const Call& call)
        : PreparedKernel(of.layouts_of_results(call), of.loads_, call.step.inputs.size(), of.scalars_, call.env, call.concats),
          dense_(of.kernel_->dense),
          numel_(call.numel) {}
    void run(char* const* addresses, const capture::Env& env) const override {
      Scalars memory;
      dense_({.pointers = pointers_of(addresses).data(), .scalars = scalars_of(env, memory), .count = numel_});
    }

   private:
    DenseKernel* const dense_;
    const int64_t numel_;
  };

  class PreparedNest final : public PreparedKernel {
   public:
    PreparedNest(const KernelCall& of, const Call& call, const Nest& nest)
        : PreparedKernel(of.layouts_of_results(call), of.loads_, call.step.inputs.size(), of.scalars_, call.env, call.concats),
          of_(of),
          loops_(nest.loops) {
      for (size_t i = 0; i < of.loads_; ++i) offsets_.push_back(nest.pointers[i] - memory_of(call.load(i)));
    }
    void run(char* const* addresses, const capture::Env& env) const override {
      Scalars memory;
      Pointers pointers = pointers_of(addresses);
      for (size_t i = 0; i < offsets_.size(); ++i) pointers[i] += offsets_[i];
      cpu::run_nest(of_.kernel_->dense, loops_, pointers, of_.widths_, scalars_of(env, memory), of_.grain_);
    }

   private:
    const KernelCall& of_;
    const c10::SmallVector<Loop, 4> loops_;
    c10::SmallVector<int64_t, 16> offsets_;  // by pointer, for padded operands
  };

  bool can_write_leaves(const Call& call) const override { return call.is_one_loop && kernel_->leaves != nullptr; }

  void launch(Call& call) const override {
    if (call.leaves != nullptr) return run_leaves(call);
    if (call.is_one_loop) return run_dense(call);
    if (!call.is_empty()) run_nest(call);
  }

  void run_dense(const Call& call) const {
    Pointers pointers;
    for (size_t i = 0; i < loads_; ++i) pointers.push_back(memory_of(call.load(i)));
    for (const at::Tensor& result : call.results) pointers.push_back(memory_of(result));
    for (const Concats::Part& part : call.concats.parts()) pointers.push_back(part.memory);
    run_pieces(call.numel, nontemporal_of(call.results, pointers), [&](int64_t begin, int64_t count, NontemporalStores::Block& block) {
      Pointers at(pointers.begin(), pointers.end());
      for (size_t i = 0; i < at.size(); ++i) {
        if (!is_broadcast(i)) at[i] += begin * element_sizes_[i];
      }
      block.take_place_of(at);
      kernel_->dense({.pointers = at.data(), .scalars = call.scalars.data(), .count = count});
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

  // Processes all elements in parallel; with non-temporal stores, by pieces that begin at cache lines.
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
        } else if (!is_broadcast(i) && (i < loads_ || is_block[i - loads_] == 0)) {
          at[i] += begin * sizes[i];
        }
      }
      block.take_place_of(at);
      kernel_->leaves({.pointers = at.data(), .scalars = call.scalars.data(), .count = count, .is_block = is_block.data()});
    });
  }

  void run_nest(const Call& call) const {
    const Nest nest = nest_of(call);
    cpu::run_nest(kernel_->dense, nest.loops, nest.pointers, widths_, call.scalars.data(), grain_);
  }

  const std::shared_ptr<const CpuKernel> kernel_;
  const int64_t grain_;
  std::vector<int64_t> widths_;  // by pointer: the kernel's stride in bytes from one element to the next
};

}  // namespace

std::unique_ptr<const OpCall> make_kernel_call(const Group& group, std::shared_ptr<const CpuKernel> kernel) {
  if (group.body.by_rows) return make_row_call(group, std::move(kernel));
  if (group.body.product) return make_product_call(group, std::move(kernel));
  return std::make_unique<KernelCall>(group, std::move(kernel));
}

}  // namespace hindcast::codegen::cpu
