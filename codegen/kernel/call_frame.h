#pragma once
// The frame of a kernel's call, which is the same for all kernels of all backends: inputs as plain memory, scalars, answers to leaves,
// memory for results, the kernel, release of inputs, results to their slots. A backend says where memory comes from. A kind of kernel says
// how its results lie, and launches.

#include "codegen/kernel/concats.h"
#include "codegen/kernel/launch_args.h"
#include "codegen/kernel/leaf_requests.h"

#include <algorithm>

namespace hindcast::codegen {

/// Where a backend's results come from. One per backend, never destroyed.
class ResultMaker {
 public:
  virtual const CostModel& costs() const = 0;
  /// An uninitialised tensor.
  virtual at::Tensor make_new(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type, c10::Device device) const = 0;
  /// In which a kernel makes a result.
  virtual at::ScalarType made_as(const Body& body, const BodyStore& store) const = 0;
  /// A result to one of its leaves, where no kernel has done it.
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
  /// One call. `results`, by Group::stores: undefined where only leaves read it.
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
    const LeafWrites* leaves = nullptr;  // where the kernel writes to them
    uint64_t added = 0;                  // a bit each: the result is a leaf's gradient, to which the kernel adds
    bool is_added(size_t store) const { return store < 64 && (added >> store & 1) != 0; }
    // Of a kernel without rows:
    Ints strides;  // elements, of a result with the domain's sizes
    int64_t numel = 1;
    bool is_one_loop = false;
  };

  /// Before anything is made.
  virtual void lay_out(Call& /*call*/) const {}
  virtual ResultLayout layout_of(const Call& call, size_t store) const = 0;
  /// The result may lie where an input did.
  virtual bool may_take_input(const Call& call, size_t store) const = 0;
  /// The kernel has a function that writes to leaves, and this call can use it.
  virtual bool can_write_leaves(const Call& call) const = 0;
  /// The kernel may add the result to what is there, of a store of which it does not write the leaves otherwise.
  virtual bool can_add_to_leaf(size_t /*store*/) const { return false; }
  virtual void launch(Call& call) const = 0;

  /// Layouts and sizes are all that the call depends on: nothing that it reads has to be computed first, or is a number in a tensor.
  bool may_be_prepared(const Step& step, const Slots& slots) const;
  std::vector<TensorLayout> layouts_of_results(const Call& call) const;
  /// A result may be so large that it takes the memory of an operand instead, where it can.
  bool has_large_results(const Call& call) const;
  /// Results for a call that is laid out and not launched.
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
