#pragma once
// A group: instrs that run as one kernel, the kernel's body, and its operands.

#include "codegen/fuse/body.h"
#include "codegen/fuse/padding.h"
#include "hindcast/graph.h"

#include <string>
#include <vector>

namespace hindcast::codegen {

/// How a tensor is indexed by the axes of a group's domain.
struct Access {
  std::vector<capture::ExprId> sizes;  // the shape as which a contiguous tensor is read; empty: its own
  std::vector<int8_t> dim_of_axis;     // by axis of the domain: the tensor's dim whose innermost part the axis runs along; -1: broadcast
  /// By dim, offsets to be added up: where in `sizes` the tensor, contiguous or not, is placed among zeros. Empty: it is not padded.
  std::vector<std::vector<Offset>> offsets = {};
  bool operator==(const Access&) const = default;
};

/// Whether the tensor's dims are in the order of the axes: in `order` (dims, outermost first), or if that is empty in their own order.
bool goes_along(const Access& access, const std::vector<uint8_t>& order = {});

/// `value`, or `value` divided by a product of sizes; or the number in a CPU tensor.
struct GroupScalar {
  capture::Arg value;  // Constant, Int or Float
  std::vector<capture::ExprId> divisors;
  capture::ValueId number = {};  // defined: the tensor, which is among Group::unread
};

struct Group {
  std::vector<uint32_t> members;        // instrs, in order
  std::vector<uint32_t> views;          // instrs: views that it reads through
  c10::Device device = c10::kCPU;       // of all its tensors
  std::vector<capture::ExprId> domain;  // its axes, outermost first: all its results are dense in their order
  uint32_t columns = 0;                 // row kernels: bit mask of the axes along a row
  uint32_t channels = 0;                // row kernels with several channels: bit mask of the axes that count them, of rows and of columns
  Body body;
  std::vector<capture::ValueId> loads;  // by Body::loads
  std::vector<Access> accesses;         // by Body::loads
  /// The factors of the body's product, if it has one: of two dims each, or three with a batch dim first. They are among inputs_of().
  std::vector<capture::ValueId> factors;
  std::vector<capture::ValueId> unread;  // arguments of its instrs that only ATen reads, such as a loss' input read for its shape
  std::vector<GroupScalar> scalars;      // by Body's scalars
  std::vector<capture::ValueId> stores;
  std::vector<std::vector<capture::ExprId>> shapes;  // of the stores
  std::vector<std::vector<uint8_t>> orders;          // by store: its dims, outermost first; empty: it is contiguous
  /// The result of a `cat` or `stack` of values that the group computes: its kernel writes the parts to their places in the result. The
  /// parts are in Body::stores, after those of `stores`.
  struct Concat {
    capture::ValueId value;
    std::vector<capture::ValueId> parts;
    std::vector<capture::ExprId> shape;    // of each part
    uint8_t dim = 0;                       // of the result
    bool is_stack = false;                 // `dim` is a new dim, which the parts do not have
    std::vector<int8_t> dim_of_axis = {};  // of a part, as in Access
  };
  std::vector<Concat> concats;
  /// A leaf whose gradient is one of the results. Leaves of the same result are adjacent.
  struct Leaf {
    uint32_t store;  // into stores
    uint32_t instr;  // its Accumulate event
    /// Takes the result itself if it has no gradient yet: the last leaf of a result without other readers, or one with another shape.
    bool takes_result;
    bool is_of_leaves;  // only leaves read the result, in whatever shape
  };
  std::vector<Leaf> leaves;
  std::string stopped;  // why it stopped growing
};

/// The inputs of the group's step: loads, then `unread`.
std::vector<capture::ValueId> inputs_of(const Group& group);

/// The results of the kernel, in the order of the step's outputs: stores, then concats.
std::vector<capture::ValueId> results_of(const Group& group);

/// By Body::stores: stores, then the parts of concats.
std::vector<capture::ValueId> stored_values_of(const Group& group);

/// Bytes of host memory that the group holds.
size_t footprint(const Group& group);

/// The group's members and the views that they read through, in the graph's order.
std::vector<uint32_t> instrs_of(const Group& group);

}  // namespace hindcast::codegen
