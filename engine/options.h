#pragma once
// What a guard may be given. Valid C++17: part of the public header.

#include "base/api.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}

namespace hindcast {

namespace capture {
class Graph;
struct Bindings;
}  // namespace capture
using Graph = capture::Graph;        ///< include <hindcast/graph.h> (C++20) to look inside
using Bindings = capture::Bindings;  ///< values of the graph's symbols in one backward

/// Runs one segment of a graph: the tensors that it reads, in the order of Segment::inputs, to those that it makes, in the
/// order of Segment::outputs. Called with grad mode off; may be called from several threads at once.
using SegmentFunction = std::function<std::vector<at::Tensor>(std::vector<at::Tensor> inputs, const Bindings& bindings)>;

/// A graph compiler: gets a captured graph, returns one function for each of its segments, in order. An empty function, a
/// list of the wrong length or an exception means that the segment (or the graph) is replayed through ATen.
///
/// Made from any callable `std::vector<SegmentFunction>(const std::shared_ptr<const Graph>&)`. What it compiled is reused by
/// later guards that are given the same Compiler or a copy of it; a callable without state is the same compiler everywhere.
class Compiler {
 public:
  using Function = std::function<std::vector<SegmentFunction>(const std::shared_ptr<const Graph>&)>;

  Compiler() = default;
  template <class F, class = std::enable_if_t<std::is_invocable_r_v<std::vector<SegmentFunction>, F&, const std::shared_ptr<const Graph>&>>>
  Compiler(F function)
      : Compiler(Function(std::move(function)), std::is_empty<F>::value ? reinterpret_cast<std::uintptr_t>(&typeid(F)) : 0) {}
  /// `identity` 0: one of its own.
  HINDCAST_API Compiler(Function function, std::uint64_t identity);

  explicit operator bool() const { return function_ != nullptr; }
  std::vector<SegmentFunction> operator()(const std::shared_ptr<const Graph>& graph) const { return (*function_)(graph); }
  std::uint64_t identity() const { return identity_; }

 private:
  std::shared_ptr<const Function> function_;
  std::uint64_t identity_ = 0;
};

enum class Dynamic {
  Automatic,  ///< static first; sizes become dynamic when they are first seen to change
  Never,      ///< one capture for every combination of sizes and scalars, up to the limit
  Inferred,  ///< of compiled functions: no branch of the function depends on a size, so that what two sizes have in common holds between them
};

/// How autograd nodes are read on every backward.
enum class Collector {
  Typed,    ///< collectors generated for LibTorch's node classes
  Visitor,  ///< LibTorch's own visitor: slower, for comparison
};

struct Options {
  Compiler compiler;  ///< empty: compilers::fused(), or what HINDCAST_COMPILER names: eager, fused, fused_through_aten
  Dynamic dynamic = Dynamic::Automatic;
  std::size_t limit = 8;         ///< captures of one structure; a backward that fits none of them is left to the stock engine. Without
                                 ///< `back_off`, and behind a hook, it runs its nodes as themselves
  std::size_t cache_size = 256;  ///< structures kept, least recently used first out
  std::size_t cache_bytes = std::size_t{256} << 20;  ///< that captures and their kernels may take, least recently used first out
  bool back_off = true;             ///< leave to the stock engine what does not pay: structures that do not come back while captures
                                    ///< are not hit
  bool deterministic = false;       ///< equal inputs give equal bits, from the first backward on, whatever was captured before: all runs
                                    ///< through ATen, and a compiler of your own is told (Graph::strict). Also where LibTorch is asked
                                    ///< for deterministic algorithms
  bool async = true;                ///< compilers::fused() compiles in the background; false: before backward() returns
  bool verify = false;              ///< check each captured graph by replaying it on copies
  bool nan_guard = false;           ///< look for infinities and NaN in gradients, and log where they began
  bool cuda_graphs = false;         ///< on CUDA, replay backwards as CUDA graphs: fewer launches, for device memory that they keep
  bool require_cuda_graph = false;  ///< the same, and a hit that cannot be replayed as one CUDA graph throws std::runtime_error
  std::size_t cuda_graph_bytes = std::size_t{256} << 20;  ///< device memory that CUDA graphs may keep, least recently used first out
  Collector collector = Collector::Typed;
  bool enabled = true;  ///< false: everything in this guard's scope runs on the stock engine
};

namespace compilers {
/// Replays a graph through ATen, op by op, to the stock engine's bits.
HINDCAST_API Compiler eager();
/// The default. Fuses operators into kernels for the CPU, compiled in the process by Clang; the rest is replayed through ATen.
/// Gradients differ from the stock engine's by rounding. Needs libhindcast_clang.so beside hindcast's own library.
HINDCAST_API Compiler fused();
/// Plans as fused() does, but runs each group op by op through ATen, to the stock engine's bits: tells a wrong kernel from a
/// wrong plan.
HINDCAST_API Compiler fused_through_aten();
/// Prints each captured graph to `out` (it must outlive the guard), then replays it.
HINDCAST_API Compiler print(std::ostream& out);
}  // namespace compilers

}  // namespace hindcast
