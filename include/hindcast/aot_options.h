#pragma once
// Options and counters of aot_function(). Valid C++17: part of the public header <hindcast/aot.h>.

#include <hindcast/api.h>
#include <hindcast/options.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hindcast {

namespace capture {
struct Joint;
struct Partitioned;
}  // namespace capture
using Joint = capture::Joint;              ///< include <hindcast/graph.h> (C++20) to look inside
using Partitioned = capture::Partitioned;  ///< the same

/// The result of a program compiler: computes the program's outputs from its inputs, both in order. Called below autograd, perhaps from
/// several threads at once. It must return new tensors and must not write to its inputs.
using ProgramFunction = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>;

/// Compiles the forward or the backward program of a function. If empty, compilers::fused() is used.
///
/// Made from a Compiler, or from any callable `ProgramFunction(const std::shared_ptr<const Graph>&, const std::vector<at::Tensor>&)` that
/// gets the program and example inputs. The program may have symbolic sizes (Graph::symbols): the compiled function serves all sizes that
/// the program's relations allow, as run_program() does. If the callable throws or returns an empty function, ATen runs the program, which
/// is logged.
class ProgramCompiler {
 public:
  using Function = std::function<ProgramFunction(const std::shared_ptr<const Graph>&, const std::vector<at::Tensor>&)>;

  ProgramCompiler() = default;
  ProgramCompiler(Compiler compiler) : compiler_(std::move(compiler)) {}
  template <class F, class = std::enable_if_t<
                         std::is_invocable_r_v<ProgramFunction, F&, const std::shared_ptr<const Graph>&, const std::vector<at::Tensor>&>>>
  ProgramCompiler(F function) : function_(std::move(function)) {}

  bool is_users() const { return compiler_ || function_; }
  const Compiler& compiler() const { return compiler_; }
  const Function& function() const { return function_; }

 private:
  Compiler compiler_;
  Function function_;
};

struct PartitionOptions {
  double memory_budget = 1;  ///< for min_cut, 0 to 1. 1: recompute only what is nearly free; 0: recompute everything that can be recomputed
  std::vector<std::uint32_t> lasting;  ///< primals that stay alive anyway, such as parameters: saving them costs no memory
};
/// Splits a joint program into a forward and a backward program.
using Partition = std::function<std::shared_ptr<const Partitioned>(const Joint&, const PartitionOptions&)>;

namespace partition {
/// Saves what the autograd formulas save.
HINDCAST_API std::shared_ptr<const Partitioned> standard(const Joint& joint, const PartitionOptions& options);
/// Saves as few bytes as possible, and recomputes the rest in the backward where that is nearly free: a minimum cut between forward and
/// backward (Boost.Graph).
HINDCAST_API std::shared_ptr<const Partitioned> min_cut(const Joint& joint, const PartitionOptions& options);
/// Returns as text what is saved and what needs it, what is recomputed, and how many bytes are saved, next to those of standard().
HINDCAST_API std::string explain(const Joint& joint, const Partitioned& parts);
}  // namespace partition

/// Memory layout in which the convolutions of a function with a backward compute. Results always have the layout that the function gives
/// them.
enum class Layouts {
  AsGiven,   ///< each uses the layout of its operands
  Measured,  ///< channels-last where that was measured to be faster on this machine
};

struct AotOptions {
  ProgramCompiler fw_compiler, bw_compiler;
  Partition partition = partition::standard;
  std::vector<std::size_t> static_argnums;  ///< arguments whose sizes never become dynamic; numbers never do
  Dynamic dynamic = Dynamic::Automatic;
  double memory_budget = 1;     ///< see PartitionOptions::memory_budget
  bool fallback = true;         ///< true: what cannot be traced falls back to eager, which is counted and logged; false: it throws
  std::size_t check_every = 0;  ///< n: every n-th call also runs the function itself and compares; throws if the results differ
  bool back_off = true;         ///< calls that gain nothing run the function after a single check: <hindcast/detail/back_off_policy.h>
  std::size_t limit = 8;        ///< programs kept per structure of the arguments; beyond it the function runs eagerly
  /// True: programs draw ATen's random numbers, so a seed gives the same numbers as the eager function. False: kernels may draw other
  /// numbers of the same distribution, which a seed reproduces too, with one call of LibTorch's generator per dropout, whose mask min_cut
  /// then does not save. The first call, programs with deterministic algorithms or `check_every`, and functions called where the same
  /// numbers may be drawn again (in a checkpoint) always use ATen's.
  bool fallback_random = false;
  /// Returns names of the tensors that the function reads from outside, one per tensor, empty for no name; used in printed programs.
  /// aot_module() passes the names of parameters and buffers. Called when a function is traced.
  std::function<std::vector<std::string>(const std::vector<at::Tensor>&)> tensor_names;
  Layouts layouts = Layouts::Measured;
  bool async = true;  ///< kernels are compiled in the background; false: before the call returns
};

/// Counters of one compiled function since it was made.
struct AotStats {
  std::uint64_t calls = 0;
  std::uint64_t hits = 0;              ///< calls that ran a program
  std::uint64_t traces = 0;            ///< calls that were traced
  std::uint64_t eager = 0;             ///< calls that ran the function eagerly
  std::uint64_t left = 0;              ///< eager calls that skipped the look-up, since similar calls gained nothing: AotOptions::back_off
  std::uint64_t backwards = 0;         ///< gradients computed by a program
  std::uint64_t numbers_differed = 0;  ///< calls whose item() or data-dependent size had a value that no program is for
};

}  // namespace hindcast
