#pragma once
// The sequence of a kernel's call, the same for all kernels of all backends: make inputs plain memory, evaluate scalars, answer leaf
// requests, allocate results, launch, release inputs, put results into their slots. A backend supplies the memory. Each kind of kernel
// supplies the layout of its results and the launch.

#include "codegen/kernel/concats.h"
#include "codegen/kernel/launch_args.h"
#include "codegen/kernel/leaf_requests.h"

#include <algorithm>

namespace hindcast::codegen {

/// Allocates a backend's results. One per backend, never destroyed.
class ResultMaker {
 public:
  virtual const CostModel& costs() const = 0;
  /// An uninitialised tensor.
  virtual at::Tensor make_new(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type, c10::Device device) const = 0;
  /// The type in which a kernel writes a result, before any conversion to the type of the store.
  virtual at::ScalarType made_as(const Body& body, const BodyStore& store) const = 0;
  /// Writes a result to one of its leaves, when the kernel has not done it.
  virtual void write_to_leaf(const LeafWrites::Write& write, const at::Tensor& result) const = 0;

 protected:
  ~ResultMaker() = default;
};

class CallFrame : public OpCall {
 public:
  CallFrame(const Group& group, const ResultMaker& maker);

  void run(const Step& step, Slots& slots, const capture::Env& env) const final { run_to_leaves(step, slots, env, {}); }
  void run_to_leaves(const Step& step, Slots& slots, const capture::Env& env, std::span<LeafRequest> requests) const final;
  bool writes_leaves() const final { return true; }
  std::string describe() const final { return describe_kernel(group_); }

 protected:
  /// The state of one call. `results` is indexed by Group::stores; undefined if only leaves read the result.
  struct Call {
    Call(const Step& step_, Slots& slots_, const capture::Env& env_, const CallFrame& frame);
    const at::Tensor& load(size_t i) const { return slots[step.inputs[i].slot]; }
    bool is_empty() const { return std::find(domain.begin(), domain.end(), 0) != domain.end(); }

    const Step& step;
    Slots& slots;
    const capture::Env& env;
    const Ints domain;
    const c10::SmallVector<double, 16> scalars;
    Concats concats;
    c10::SmallVector<at::Tensor, 16> results;
    const LeafWrites* leaves = nullptr;  // nullptr unless the kernel writes to leaves
    uint64_t added = 0;                  // bit i: result i is a leaf's gradient, and the kernel adds to it
    bool is_added(size_t store) const { return store < 64 && (added >> store & 1) != 0; }
    // Only for kernels without rows:
    Ints strides;  // in elements, of a result with the domain's sizes
    int64_t numel = 1;
    bool is_one_loop = false;
  };

  /// Called before anything is allocated.
  virtual void lay_out(Call& /*call*/) const {}
  virtual ResultLayout layout_of(const Call& call, size_t store) const = 0;
  /// Whether the result may reuse the memory of an input.
  virtual bool may_take_input(const Call& call, size_t store) const = 0;
  /// Whether the kernel has a function that writes to leaves, and this call can use it.
  virtual bool can_write_leaves(const Call& call) const = 0;
  /// Whether the kernel may add the result of this store to a leaf's gradient, for a store whose leaves it does not write otherwise.
  virtual bool can_add_to_leaf(size_t /*store*/) const { return false; }
  virtual void launch(Call& call) const = 0;

  /// Whether the call depends on layouts and sizes only: no input has to be computed first, and no scalar is read from a tensor.
  bool may_be_prepared(const Step& step, const Slots& slots) const;
  std::vector<TensorLayout> layouts_of_results(const Call& call) const;
  /// Whether the results of such a call lie as the kernel writes them, and none is so large that its memory is worth taking over.
  bool may_be_prepared(const Call& call) const;
  /// Makes the results of a call that is laid out and not launched.
  void make_unread_results(Call& call) const;

  static char* memory_of(const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())) : nullptr;
  }

  const Group group_;
  const size_t loads_;
  const ScalarArgs scalars_;

 private:
  void make_results(Call& call, const LeafWrites& leaves) const;
  void put_results(Call& call, const LeafWrites& leaves) const;

  const ResultMaker& maker_;
};

}  // namespace hindcast::codegen
