#pragma once
// Options of a guard. Valid C++17: part of the public header.

#include <hindcast/api.h>

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

/// Runs one segment of a graph: returns the tensors that it makes, in the order of Segment::outputs, from those that it reads, in the order
/// of Segment::inputs. Called with grad mode off; may be called from several threads at once.
using SegmentFunction = std::function<std::vector<at::Tensor>(std::vector<at::Tensor> inputs, const Bindings& bindings)>;

/// A graph compiler: gets a captured graph, returns one function for each of its segments, in order. An empty function, a
/// list of the wrong length or an exception means that the segment (or the graph) is replayed through ATen.
///
/// Made from any callable `std::vector<SegmentFunction>(const std::shared_ptr<const Graph>&)`. What it compiled is reused by later guards
/// that get the same Compiler or a copy of it; a stateless callable is the same compiler everywhere.
class Compiler {
 public:
  using Function = std::function<std::vector<SegmentFunction>(const std::shared_ptr<const Graph>&)>;

  Compiler() = default;
  template <class F, class = std::enable_if_t<std::is_invocable_r_v<std::vector<SegmentFunction>, F&, const std::shared_ptr<const Graph>&>>>
  Compiler(F function)
      : Compiler(Function(std::move(function)), std::is_empty<F>::value ? reinterpret_cast<std::uintptr_t>(&typeid(F)) : 0) {}
  /// `identity` 0: a new identity.
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
  Inferred,  ///< for compiled functions: no branch of the function depends on a size, so relations that hold at two sizes hold between them
};

/// How autograd nodes are read in every backward.
enum class Collector {
  Typed,    ///< collectors generated for LibTorch's node classes
  Visitor,  ///< LibTorch's own visitor: slower, for comparison
};

struct Options {
  Compiler compiler;  ///< empty: compilers::fused(), or what HINDCAST_COMPILER names: eager, fused, fused_through_aten
  Dynamic dynamic = Dynamic::Automatic;
  /// Captures per structure; a backward that matches none of them is left to the stock engine. Without `back_off`, and after a hook, its
  /// nodes are called as opaque nodes.
  std::size_t limit = 8;
  std::size_t cache_size = 256;                      ///< structures kept; the least recently used is evicted first
  std::size_t cache_bytes = std::size_t{256} << 20;  ///< for captures and their kernels; the least recently used are evicted first
  bool back_off = true;  ///< leave to the stock engine what does not pay off: structures that do not recur while captures get no hits
  /// Equal inputs give bitwise equal results, from the first backward on, whatever was captured before: everything runs through ATen, and a
  /// custom compiler sees Graph::bitwise. Also applies when LibTorch's deterministic algorithms are enabled.
  bool deterministic = false;
  bool async = true;                ///< compilers::fused() compiles in the background; false: before backward() returns
  bool verify = false;              ///< check each captured graph by replaying it on copies
  bool nan_guard = false;           ///< look for infinities and NaN in gradients, and log where they began
  bool cuda_graphs = false;         ///< on CUDA, replay backwards as CUDA graphs: fewer launches, at the cost of device memory
  bool require_cuda_graph = false;  ///< the same, and a hit that cannot be replayed as one CUDA graph throws std::runtime_error
  /// Device memory that CUDA graphs may keep; the least recently used are evicted first.
  std::size_t cuda_graph_bytes = std::size_t{256} << 20;
  Collector collector = Collector::Typed;
  bool enabled = true;  ///< false: everything in this guard's scope runs on the stock engine
};

namespace compilers {
/// Replays a graph through ATen, op by op, bitwise equal to the stock engine.
HINDCAST_API Compiler eager();
/// The default. Fuses operators into kernels: for the CPU, compiled in the process by Clang, and for CUDA, compiled by NVRTC. The rest is
/// replayed through ATen. Gradients differ from the stock engine's by rounding. The CPU's kernels need libhindcast_clang.so beside
/// hindcast's own library.
HINDCAST_API Compiler fused();
/// Plans as fused() does, but runs each group op by op through ATen, bitwise equal to the stock engine: distinguishes a wrong kernel from a
/// wrong plan.
HINDCAST_API Compiler fused_through_aten();
/// Prints each captured graph to `out` (it must outlive the guard), then replays it.
HINDCAST_API Compiler print(std::ostream& out);
}  // namespace compilers

}  // namespace hindcast
