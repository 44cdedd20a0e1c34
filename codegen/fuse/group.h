#pragma once
// Instrs that run as one kernel: its body, and the tensors that it is given.

#include "capture/graph/graph.h"
#include "codegen/fuse/body.h"
#include "codegen/fuse/padding.h"

#include <string>
#include <vector>

namespace hindcast::codegen {

/// How a tensor lies in a group's domain.
struct Access {
  std::vector<capture::ExprId> sizes;  // the shape as which a contiguous tensor is read; empty: its own
  std::vector<int8_t> dim_of_axis;     // which of its dims walks along an axis of the domain, as its innermost part; -1: none
  /// By dim, to be added up: where in `sizes` the tensor lies, contiguous or not, among zeros. Empty: it is all of them.
  std::vector<std::vector<Offset>> offsets = {};
  bool operator==(const Access&) const = default;
};

/// The tensor's dims follow each other as the axes do: in that order (dims, outermost first), or where there is none as they are.
bool goes_along(const Access& access, const std::vector<uint8_t>& order = {});

/// `value`, or `value` divided by a product of sizes; or what is in a tensor of the host.
struct GroupScalar {
  capture::Arg value;  // Constant, Int or Float
  std::vector<capture::ExprId> divisors;
  capture::ValueId number = {};  // defined: the tensor, which is among Group::unread
};

struct Group {
  std::vector<uint32_t> members;        // instrs, in order
  std::vector<uint32_t> views;          // views that it reads through
  c10::Device device = c10::kCPU;       // of all its tensors
  std::vector<capture::ExprId> domain;  // its axes, outermost first: all its results are dense in their order
  uint32_t columns = 0;                 // by rows: the axes, a bit each, that the elements of a row lie along
  uint32_t channels = 0;                // by rows of several channels: the axes that count them, of rows and of columns
  Body body;
  std::vector<capture::ValueId> loads;  // by Body::loads
  std::vector<Access> accesses;         // by Body::loads
  /// Of a body with a product: its factors, of two dims each, or of three with a batch in front. They are among inputs_of().
  std::vector<capture::ValueId> factors;
  std::vector<capture::ValueId> unread;  // arguments of its instrs that only ATen reads, as the shape of a loss' input
  std::vector<GroupScalar> scalars;      // by Body's scalars
  std::vector<capture::ValueId> stores;
  std::vector<std::vector<capture::ExprId>> shapes;  // of the stores
  std::vector<std::vector<uint8_t>> orders;          // by store: its dims, outermost first; empty: it is contiguous
  /// The result of a `cat` or `stack` of parts that the group makes, which its kernel writes to where they lie in it: in Body::stores
  /// behind `stores`, part by part.
  struct Concat {
    capture::ValueId value;
    std::vector<capture::ValueId> parts;
    std::vector<capture::ExprId> shape;    // of each part
    uint8_t dim = 0;                       // of the result
    bool is_stack = false;                 // `dim` is one that the parts do not have
    std::vector<int8_t> dim_of_axis = {};  // of a part, as Access has it
  };
  std::vector<Concat> concats;
  /// A leaf that gets a result as its gradient. Leaves of one result are neighbours.
  struct Leaf {
    uint32_t store;     // into stores
    uint32_t instr;     // its Accumulate
    bool takes_result;  // if it has no gradient yet: the last one of a result that nobody else reads, or of another shape
    bool is_of_leaves;  // nobody but leaves reads the result, in whatever shape
  };
  std::vector<Leaf> leaves;
  std::string stopped;  // why it stopped growing
};

/// All that a call of the group is given: loads, then what is unread.
std::vector<capture::ValueId> inputs_of(const Group& group);

/// What its kernel makes, in the order of its step's outputs: stores, then concats.
std::vector<capture::ValueId> results_of(const Group& group);

/// By Body::stores: stores, then the parts of concats.
std::vector<capture::ValueId> stored_values_of(const Group& group);

/// Bytes that it holds.
size_t footprint(const Group& group);

/// The group's members and the views that they read through, in the graph's order.
std::vector<uint32_t> instrs_of(const Group& group);

}  // namespace hindcast::codegen
