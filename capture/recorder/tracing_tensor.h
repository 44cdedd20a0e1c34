#pragma once
// The stand-in for a tensor while a node's formula is traced: it holds the real tensor and its value in the graph. Its sizes are plain
// numbers, or symbols if the variant is dynamic.

#include "hindcast/graph.h"

#include <c10/core/TensorImpl.h>

#include <memory>

namespace hindcast::capture {

class Recorder;

/// Which of a backward's incoming gradients a stand-in's contents depend on, where some of them are absent (absent_gradients.cpp).
enum class Gradients : uint8_t { None, Given, Absent };

/// Stand-ins that share memory share a Base. A write replaces `value` by a new one; stand-ins that were made before are derived again from
/// it.
struct Base {
  ValueId value;
  uint32_t version = 0;
  bool fresh = false;     // made by the node that is being traced: may be written
  uint64_t recorder = 0;  // its recorder's number: a stand-in may outlive its trace and reach another one
  Gradients gradients = Gradients::None;
  bool has_views_of_storage = false;  // made by as_strided: they may reach memory outside of the base
};

class TracingTensor final : public c10::TensorImpl {
 public:
  /// A normal tensor if the real one is, in inference mode too: views of normal tensors are normal.
  static c10::intrusive_ptr<TracingTensor> make(at::Tensor real, ValueId value, std::shared_ptr<Base> base, std::vector<c10::SymInt> sizes);
  TracingTensor(at::Tensor real, ValueId value, std::shared_ptr<Base> base, std::vector<c10::SymInt> sizes);  // for make()

  at::Tensor real;
  ValueId value;
  std::shared_ptr<Base> base;
  std::vector<ViewStep> views;       // from base to this tensor
  std::vector<ValueId> view_values;  // by view: its value when it was first taken, which has its sizes and dtype
  uint32_t version = 0;              // of base, when `value` was derived
  bool symbolic = false;
  bool lost_history = false;  // a copy without the history of a tensor that has one: `x.data`
  std::vector<c10::SymInt> sizes;

  /// From now on it stands for what `view` stands for.
  void become(const TracingTensor& view);
  /// From now on it is a plain tensor in the memory of the real one, with the autograd history that it has.
  void become_plain();
  /// From now on this class answers every query of the geometry, also of the storage offset (storage_offset.h).
  void watch_geometry() {
    watched_ = true;
    set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
  }
  /// From now on it is an ordinary tensor of zeros. The kernels for zero tensors are above the recorder: they take sizes as numbers only,
  /// and compute results' sizes on meta tensors, which a program would repeat.
  void be_no_zero_tensor() { key_set_ = key_set_.remove(c10::DispatchKey::ZeroTensor); }
  /// From now on this class answers queries of the strides, which depend on sizes that this tensor may not have.
  void watch_strides() {
    watches_strides_ = true;
    show_geometry();
  }
  static TracingTensor* get(const at::Tensor& tensor);  // nullptr for any other tensor
  /// Which symbolic sizes Python code can take unnoticed.
  enum class Symbols : uint8_t { Nowhere, Unsteady, All };  // Unsteady: sizes that have changed
  /// Python's interpreter, whose code otherwise gets numbers of its own type.
  struct Interpreter {
    bool (*is_asking)();                                              // whether it asks for something now
    Symbols (*takes_symbols)(const std::vector<c10::SymInt>& sizes);  // which of these sizes, which it asks for, may be symbols
    at::Scalar (*number_in_place_of)(const at::Tensor& placeholder);  // the number, perhaps symbolic, that PyTorch passes it for
  };
  /// `interpreter` must live as long as the process.
  static void give_numbers_to(const Interpreter& interpreter);
  /// The number itself where PyTorch's bindings pass a placeholder for a symbolic operand (`x * n`); otherwise `tensor`. A symbolic integer
  /// becomes a tensor of no dimensions that an op makes, if `may_be_symbol`: unlike a number it takes part in type promotion.
  static at::Tensor with_its_number(const at::Tensor& tensor, bool may_be_symbol);
  c10::SymIntArrayRef traced_sizes() const;

 private:
  bool has_storage() const override;
  const c10::Storage& storage() const override;
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
  void show_memory() const;
  bool knows_its_offset(const Recorder& recorder) const;
  void pin_sizes() const;
  void pin_strides() const;
  void separate_degenerate_sizes() const;
  const std::vector<c10::SymInt>& sizes_under_vmap(const c10::SymInt& mapped) const;
  const std::vector<c10::SymInt>& strides_under_vmap(const c10::SymInt& mapped) const;

  bool watched_ = false, watches_strides_ = false;
  // What the getters return references to. Each has its own: a caller may hold several at once, as functorch's wrappers do.
  mutable std::vector<int64_t> pinned_sizes_, pinned_strides_;
  mutable std::vector<c10::SymInt> size_numbers_, stride_numbers_;
  mutable std::vector<c10::SymInt> strides_;
};

}  // namespace hindcast::capture
