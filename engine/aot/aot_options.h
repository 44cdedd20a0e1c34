#pragma once
// What aot_function() may be given. Valid C++17: part of the public header <hindcast/aot.h>.

#include "base/api.h"
#include "engine/options.h"

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

/// What a program compiler makes: from the program's inputs, in order, to its outputs. Called below autograd, and
/// perhaps from several threads at once. It must return new tensors and write to none that it is given.
using ProgramFunction = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>;

/// Compiles the forward or the backward program of a function. Empty: compilers::fused().
///
/// Made from a Compiler, or from any callable `ProgramFunction(const std::shared_ptr<const Graph>&, const std::vector<at::Tensor>&)`
/// that gets the program and inputs like those it will be called with. The program may have symbols for sizes (Graph::symbols): what is
/// made of it serves all sizes that its relations allow, as run_program() does. What throws or returns an empty function leaves the program to
/// ATen, which is logged.
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
  double memory_budget = 1;            ///< of min_cut: 1, what is nearly free to compute again is not saved; 0, all that can be is not
  std::vector<std::uint32_t> lasting;  ///< primals that live on in any case, as parameters do: to save them costs no memory
};
/// Makes a forward and a backward program of a joint one.
using Partition = std::function<std::shared_ptr<const Partitioned>(const Joint&, const PartitionOptions&)>;

namespace partition {
/// Saves what the autograd formulas save.
HINDCAST_API std::shared_ptr<const Partitioned> standard(const Joint& joint, const PartitionOptions& options);
/// Saves as few bytes as it can, and computes the rest again in the backward, where it is nearly free: by the least cut between
/// forward and backward (Boost.Graph).
HINDCAST_API std::shared_ptr<const Partitioned> min_cut(const Joint& joint, const PartitionOptions& options);
/// What is saved and who needs it, what is computed again, and how many bytes that is beside what standard() saves, as text.
HINDCAST_API std::string explain(const Joint& joint, const Partitioned& parts);
}  // namespace partition

/// In which layout the convolutions of a function with a backward work. Results lie in memory as the function gives them, in any case.
enum class Layouts {
  AsGiven,   ///< each in the layout of its operands
  Measured,  ///< channels-last where that is faster, as was measured on this machine
};

struct AotOptions {
  ProgramCompiler fw_compiler, bw_compiler;
  Partition partition = partition::standard;
  std::vector<std::size_t> static_argnums;  ///< arguments whose sizes never become dynamic. Numbers never do
  Dynamic dynamic = Dynamic::Automatic;
  double memory_budget = 1;     ///< PartitionOptions::memory_budget
  bool fallback = true;         ///< what cannot be traced runs eagerly, which is counted and logged; false: it throws
  std::size_t check_every = 0;  ///< n: run the function itself beside every n-th call, and compare; throws where they differ
  bool back_off = true;         ///< calls that gain nothing run the function with a single check: engine/leaving.h
  std::size_t limit = 8;        ///< programs kept for one structure of the arguments; beyond it the function runs eagerly
  /// True: a program draws ATen's random numbers, so that each seed gives those of the function run eagerly. False: its kernels may draw others,
  /// of the same distribution, which a seed reproduces too: one call of LibTorch's generator for each dropout, whose mask min_cut then does
  /// not save. The first call, programs with deterministic algorithms or `check_every`, and functions that are called where somebody may want
  /// the same numbers once more (in a checkpoint), have ATen's in any case.
  bool fallback_random = false;
  /// Names for tensors that the function reads from outside, for the programs' texts: one for each, empty where there is none. aot_module()
  /// gives those of parameters and buffers. Asked when a function is traced.
  std::function<std::vector<std::string>(const std::vector<at::Tensor>&)> tensor_names;
  Layouts layouts = Layouts::Measured;
  bool async = true;  ///< kernels are compiled in the background; false: before the call returns
};

/// What one compiled function did since it was made.
struct AotStats {
  std::uint64_t calls = 0;
  std::uint64_t hits = 0;       ///< calls that ran a program
  std::uint64_t traces = 0;     ///< calls that were recorded
  std::uint64_t eager = 0;      ///< calls that ran the function eagerly
  std::uint64_t left = 0;       ///< of these, calls that were not looked at, since calls like them gained nothing: AotOptions::back_off
  std::uint64_t backwards = 0;  ///< gradients computed by a program
  std::uint64_t numbers_differed = 0;  ///< calls whose item(), or a size that depends on data, was none that a program is for
};

}  // namespace hindcast
