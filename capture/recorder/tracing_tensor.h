#pragma once
// The stand-in for a tensor while a node's formula is traced: it holds the real tensor and says which value of the graph
// it is. Its sizes are plain numbers, or symbols where the variant is dynamic.

#include "capture/graph/graph.h"

#include <c10/core/TensorImpl.h>

#include <memory>

namespace hindcast::capture {

class Recorder;

/// All stand-ins that share memory share one of these. A write replaces `value` by a new one; stand-ins that were made
/// before derive themselves again from it.
struct Base {
  ValueId value;
  uint32_t version = 0;
  bool fresh = false;     // made by the node that is being traced: may be written
  uint64_t recorder = 0;  // whose: a stand-in that outlives its trace may come into another one
};

class TracingTensor final : public c10::TensorImpl {
 public:
  /// A normal tensor if the real one is, in inference mode too: views of normal tensors are.
  static c10::intrusive_ptr<TracingTensor> make(at::Tensor real, ValueId value, std::shared_ptr<Base> base, std::vector<c10::SymInt> sizes);
  TracingTensor(at::Tensor real, ValueId value, std::shared_ptr<Base> base, std::vector<c10::SymInt> sizes);  // for make()

  at::Tensor real;
  ValueId value;
  std::shared_ptr<Base> base;
  std::vector<ViewStep> views;  // from base to this tensor
  uint32_t version = 0;         // of base, when `value` was derived
  bool symbolic = false;
  bool lost_history = false;  // a copy without the history of a tensor that has one: `x.data`
  std::vector<c10::SymInt> sizes;

  /// Stands from now on for what `view` stands for.
  void become(const TracingTensor& view);
  /// Is from now on a plain tensor in the memory of the real one, with the autograd history that it has.
  void become_plain();
  /// From now on every question about the geometry comes to us, also that for the storage offset (storage_offset.h).
  void watch_geometry() {
    watched_ = true;
    set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
  }
  static TracingTensor* get(const at::Tensor& tensor);  // null if it is none
  /// Where symbols go unnoticed.
  enum class Symbols : uint8_t { Nowhere, Unsteady, All };  // Unsteady: those whose sizes have changed
  /// Python's code, which gets numbers of its own type else.
  struct Interpreter {
    bool (*is_asking)();                                              // for something now
    Symbols (*takes_symbols)(const std::vector<c10::SymInt>& sizes);  // it asks for these
    int64_t (*size_in_place_of)(const at::Tensor& number);            // the size for which PyTorch passes a placeholder
  };
  /// Lasts as long as the process.
  static void give_numbers_to(const Interpreter& interpreter);
  /// A number with the size itself where PyTorch's bindings pass a placeholder for a symbolic operand (`x * n`); else `tensor`.
  static at::Tensor with_its_size(const at::Tensor& tensor);
  c10::SymIntArrayRef traced_sizes() const;

 private:
  bool has_storage() const override;
  c10::IntArrayRef sizes_custom() const override;
  c10::IntArrayRef strides_custom() const override;
  int64_t numel_custom() const override;
  int64_t dim_custom() const override;
  int64_t storage_offset_custom() const override;
  c10::SymIntArrayRef sym_sizes_custom() const override;
  c10::SymIntArrayRef sym_strides_custom() const override;
  c10::SymInt sym_numel_custom() const override;
  c10::SymInt sym_storage_offset_custom() const override;
  int64_t size_custom(int64_t dim) const override;
  c10::SymBool sym_is_contiguous_custom(at::MemoryFormat format) const override;
  c10::SymBool sym_is_non_overlapping_and_dense_custom() const override;
  bool is_strides_like_custom(at::MemoryFormat format) const override;
  const char* tensorimpl_type_name() const override { return "hindcast::TracingTensor"; }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion&, bool) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&&, bool) const override;

  void show_geometry();
  bool knows_its_offset(const Recorder& recorder) const;
  void pin_sizes() const;
  void separate_degenerate_sizes() const;

  bool watched_ = false;
  mutable std::vector<int64_t> pinned_sizes_, pinned_strides_;
  mutable std::vector<c10::SymInt> numbers_;  // the same
  mutable std::vector<c10::SymInt> strides_;
};

}  // namespace hindcast::capture
