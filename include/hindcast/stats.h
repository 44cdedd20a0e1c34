#pragma once
// The counters that tests, benchmarks and hindcast::report() read. Part of the public header, hence plain C++17.

#include <hindcast/api.h>

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>

namespace hindcast {

/// What hindcast did in this process since it started, or since reset(). Each counter is exact; while other threads run backwards, the
/// counters of one snapshot may differ by a call.
struct Stats {
  std::uint64_t backwards = 0;      ///< calls taken over from the stock engine
  std::uint64_t unique_graphs = 0;  ///< graphs captured
  std::uint64_t hits = 0;           ///< backwards that were replayed from start to end
  std::uint64_t misses = 0;         ///< backwards that needed a capture, or had reached the limit

  std::map<std::string, std::uint64_t> misses_by_reason;     ///< by name of cache::Miss::Kind
  std::map<std::string, std::uint64_t> fallbacks_by_reason;  ///< calls left to the stock engine, by FallbackReason
  std::map<std::string, std::uint64_t> opaque_nodes;         ///< nodes captured as opaque calls, by name
  std::map<std::string, std::string> opaque_reasons;         ///< the latest reason per name

  std::uint64_t nodes = 0;  ///< autograd nodes walked
  double collect_us = 0;    ///< walking nodes and look-up, summed
  double trace_us = 0;      ///< capturing, summed
  double run_us = 0;        ///< replaying, summed

  std::uint64_t opaque_calls = 0;          ///< opaque nodes called in replays
  std::uint64_t hook_calls = 0;            ///< calls of the hooks of one node and one kind
  std::uint64_t refused_graphs = 0;        ///< captures that Options::verify found wrong (none has been seen)
  std::uint64_t compiler_failures = 0;     ///< graphs that Options::compiler did not compile: replayed through ATen
  std::uint64_t fused_graphs = 0;          ///< graphs that run with fused kernels
  std::uint64_t dropped_checks = 0;        ///< graphs left to ATen because Options::verify had no room to check their kernels
  std::uint64_t left_calls = 0;            ///< calls of compiled functions that skipped the look-up, since similar calls gained nothing
  std::uint64_t kept_graphs = 0;           ///< captures kept now
  std::uint64_t kept_bytes = 0;            ///< bytes in captures and their kernels now, estimated: bounded by Options::cache_bytes
  std::uint64_t evicted_graphs = 0;        ///< captures evicted to make room for others
  std::uint64_t non_finite_backwards = 0;  ///< backwards in which Options::nan_guard found a non-finite gradient
  std::uint64_t reused_buffers = 0;        ///< large results of kernels that reused mapped memory
  std::uint64_t fresh_buffers = 0;         ///< large results for which LibTorch's allocator had to allocate memory
  std::uint64_t returned_buffers = 0;      ///< free buffers returned to LibTorch's allocator
  std::uint64_t held_bytes = 0;            ///< bytes in free buffers now; trim() returns them
  std::uint64_t held_buffers = 0;          ///< free buffers now
  std::uint64_t cuda_graphs = 0;           ///< parts of backwards captured into CUDA graphs
  std::uint64_t cuda_graph_launches = 0;   ///< launches of CUDA graphs, one per part and hit
  std::uint64_t cuda_graph_bytes = 0;      ///< device memory that CUDA graphs keep now: bounded by Options::cuda_graph_bytes
  std::map<std::string, std::uint64_t> without_cuda_graph;  ///< parts that run step by step although Options::cuda_graphs is on, by reason
  std::map<std::string, std::uint64_t> eager_functions;     ///< compiled functions that run eagerly, by reason
  std::uint64_t segment_guard_failures = 0;                 ///< times that a hook or an opaque node changed what later steps rely on

  /// Time of collecting and look-up per autograd node.
  double ns_per_node() const { return nodes == 0 ? 0 : collect_us * 1000 / static_cast<double>(nodes); }
};

/// A few lines, the empty parts left out.
HINDCAST_API std::ostream& operator<<(std::ostream& out, const Stats& stats);

}  // namespace hindcast
