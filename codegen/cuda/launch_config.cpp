#include "codegen/cuda/launch_config.h"

#include "codegen/device/indexing.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace hindcast::codegen::cuda {
namespace {

using device::kThreads;
using device::kTile;
using device::kTileRows;

constexpr int64_t kWarp = 32;

int64_t ceil_of(int64_t number, int64_t part) { return (number + part - 1) / part; }
int64_t power_of_two(int64_t at_least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(at_least, 1))));
}
Dim dim(int64_t x, int64_t y = 1) { return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), 1}; }

// The number of blocks of kThreads that fill the card.
int64_t full_card(const Limits& limits) { return int64_t{limits.multiprocessors} * limits.threads_of_multiprocessor / kThreads; }

// The most bytes of shared memory used to exchange numbers of reductions between 32 warps: up to four sums, a pair of each kind, a maximum
// and a minimum, all of the widest type.
constexpr int64_t kNumbers = 6 << 10;

// The number of blocks for which a multiprocessor has registers. A warp is allocated a multiple of 8 registers per thread.
int64_t blocks_by_registers(int64_t registers, int64_t threads_of_block, const Limits& limits) {
  constexpr int64_t kGranule = 8;
  return limits.registers_of_multiprocessor / (ceil_of(registers, kGranule) * kGranule * ceil_of(threads_of_block, kWarp) * kWarp);
}

// The number of blocks of kernels with results over rows. Each block has a slice of these in memory, so all blocks should be resident at
// once: a second wave would be nearly empty. At most half of the card's threads (a quarter if rows have at most 256 threads), which 64
// registers per thread allow: more slices are not worth their memory.
int64_t most_slices(int64_t threads_of_block, int registers, Shape shape, const Limits& limits, int64_t shared_bytes = 0) {
  const int64_t part = shape.most_threads_of_row == kThreads ? 4 : 2;
  int64_t blocks = int64_t{limits.multiprocessors} * limits.threads_of_multiprocessor / part / threads_of_block;
  if (registers != 0) blocks = std::min(blocks, limits.multiprocessors * blocks_by_registers(registers, threads_of_block, limits));
  if (shared_bytes != 0) blocks = std::min(blocks, limits.multiprocessors * (limits.most_shared_bytes / (shared_bytes + kNumbers)));
  return std::max<int64_t>(blocks, 1);
}

int registers_of(const RowProblem& problem, Entry entry) { return problem.registers[static_cast<size_t>(entry)]; }

// The number of rows per block: whole warps, and no more rows than there are.
int64_t rows_of_block(int64_t threads, int64_t rows) {
  if (threads >= kThreads) return 1;
  return std::clamp(power_of_two(rows), std::max<int64_t>(kWarp / threads, 1), kThreads / threads);
}

bool has_room_for(int64_t bytes, const Limits& limits) { return bytes != 0 && bytes + kNumbers <= limits.most_shared_bytes; }

RowLaunchConfig by_segments(const RowProblem& problem, Shape shape, const Limits& limits) {
  const int64_t length = problem.is_aligned ? shape.vector_length : 1, pieces = ceil_of(problem.columns, length);
  int64_t threads = std::min<int64_t>(power_of_two(pieces), kThreads), at_once = rows_of_block(threads, problem.rows);
  const int64_t rows_of_warp = std::max<int64_t>(kWarp / threads, 1);
  // Rows of few threads wait for each segment's barrier: distribute them over multiprocessors that would otherwise be idle.
  while (at_once > rows_of_warp && ceil_of(problem.rows, at_once) < limits.multiprocessors) at_once /= 2;
  const bool keeps = has_room_for(problem.kept_bytes * rows_of_warp, limits);
  while (keeps && !has_room_for(problem.kept_bytes * at_once, limits)) at_once /= 2;
  // A multiprocessor holds few blocks that keep much, so these blocks get more threads.
  if (keeps && at_once == 1 && problem.kept_bytes * limits.threads_of_multiprocessor > limits.most_shared_bytes * threads &&
      pieces > threads)
    threads = shape.most_threads_of_row;
  const int64_t shared_bytes = keeps ? problem.kept_bytes * at_once : 0;
  int64_t blocks = std::max<int64_t>(ceil_of(problem.rows, at_once), 1);
  const Entry entry =
      problem.is_aligned ? (keeps ? Entry::SegmentsShared : Entry::Segments) : (keeps ? Entry::SegmentsSharedEach : Entry::SegmentsEach);
  if (problem.has_results_over_rows)
    blocks = std::min(blocks, most_slices(threads * at_once, registers_of(problem, entry), shape, limits, shared_bytes));
  RowLaunchConfig config{{entry, dim(blocks), dim(threads, at_once)}};
  if (problem.has_results_over_rows) config.slices = std::min(blocks * at_once, problem.rows);
  config.shared_bytes = shared_bytes;
  return config;
}

// The number of sums of columns that fit into shared memory beside a row. 0 if each block has one row: it then writes the sums once, and
// reads none.
int64_t sums_kept(const RowProblem& problem, int64_t blocks, const Limits& limits) {
  if (problem.sums == 0 || problem.rows <= blocks) return 0;
  return std::clamp<int64_t>((limits.most_shared_bytes - kNumbers - problem.kept_bytes) / problem.sum_bytes, 0, problem.sums);
}

RowLaunchConfig rows_by_passes(const RowProblem& problem, Shape shape, const Limits& limits) {
  const bool keeps = has_room_for(problem.kept_bytes, limits);
  const int64_t pieces = problem.segments * problem.columns / (problem.is_aligned ? shape.vector_length : 1);
  const int64_t threads = keeps ? shape.most_threads_of_row : std::min<int64_t>(power_of_two(pieces), shape.most_threads_of_row);
  const int64_t at_once = rows_of_block(threads, problem.rows);
  int64_t blocks = std::max<int64_t>(ceil_of(problem.rows, at_once), 1), shared_bytes = keeps ? problem.kept_bytes : 0, kept_sums = 0;
  const Entry entry =
      problem.is_aligned ? (keeps ? Entry::RowsShared : Entry::RowsLong) : (keeps ? Entry::RowsSharedEach : Entry::RowsLongEach);
  if (problem.has_results_over_rows) {
    // Each threadIdx.y has its own slice, which for few short rows would be as large as the rows themselves.
    constexpr int64_t kRowsOfSlice = 16;
    if (at_once > 1) blocks = std::max<int64_t>(ceil_of(problem.rows, at_once * kRowsOfSlice), 1);
    const int registers = registers_of(problem, entry);
    blocks = std::min(blocks, most_slices(threads * at_once, registers, shape, limits, shared_bytes));
    if (keeps) kept_sums = sums_kept(problem, blocks, limits);
    shared_bytes += kept_sums * problem.sum_bytes;
    blocks = std::min(blocks, most_slices(threads * at_once, registers, shape, limits, shared_bytes));
  }
  RowLaunchConfig config{{entry, dim(blocks), dim(threads, at_once)}};
  if (problem.has_results_over_rows) config.slices = std::min(blocks * at_once, problem.rows);
  config.shared_bytes = shared_bytes;
  config.kept_sums = kept_sums;
  return config;
}

// For sums of columns with few elements: the columns are distributed over the card one by one, and the rows over a block, so that each
// thread has few elements and there are no slices to merge. nullopt if there are too many elements.
std::optional<RowLaunchConfig> narrow_columns(const RowProblem& problem, Shape shape, const Limits& limits) {
  constexpr int64_t kMostRowsOfThread = 4;
  const int64_t columns = problem.segments * problem.columns;
  const auto tiles_of = [&](int64_t threads) { return ceil_of(columns, threads * shape.elements_one_by_one); };
  int64_t threads = std::min(power_of_two(ceil_of(columns, shape.elements_one_by_one)), kWarp);
  while (threads > 1 && rows_of_block(threads, problem.rows) < problem.rows && 2 * tiles_of(threads) <= limits.multiprocessors)
    threads /= 2;
  const int64_t at_once = rows_of_block(threads, problem.rows);
  if (tiles_of(threads) > limits.multiprocessors || ceil_of(problem.rows, at_once) > kMostRowsOfThread) return std::nullopt;
  return RowLaunchConfig{{Entry::RowsEach, dim(1, tiles_of(threads)), dim(threads, at_once)}, 0, at_once};
}

// For rows that do not fit into shared memory: each pass reads the row again.
RowLaunchConfig long_rows(const RowProblem& problem, Shape shape, const Limits& limits) {
  // If so few rows would leave most of the card idle, they are split; each block has at least some thousand elements.
  constexpr int64_t kPiecesOfThread = 4, kMostRows = 65535;
  const int64_t length = problem.is_aligned ? shape.vector_length : 1;
  const int64_t pieces = problem.segments * problem.columns / length;
  const int64_t splits =
      std::min(full_card(limits) / 2 / std::max<int64_t>(problem.rows, 1), pieces / (shape.most_threads_of_row * kPiecesOfThread));
  if (problem.may_be_split && splits >= 2 && problem.rows <= kMostRows) {
    const Entry entry = problem.is_aligned ? Entry::RowsSplit : Entry::RowsSplitEach;
    return {{entry, dim(splits, problem.rows), dim(shape.most_threads_of_row)}, 0, 1, splits};
  }
  return rows_by_passes(problem, shape, limits);
}

}  // namespace

LaunchConfig dense_config(int64_t numel, bool is_aligned, Shape shape, const Limits& limits) {
  if (!is_aligned) return {Entry::DenseEach, dim(ceil_of(numel, int64_t{kThreads} * shape.elements_one_by_one)), dim(kThreads)};
  const int64_t tile = int64_t{kThreads} * shape.elements_of_thread;
  if (ceil_of(numel, tile) >= full_card(limits)) return {Entry::Dense, dim(ceil_of(numel, tile)), dim(kThreads)};
  return dense_few_config(numel, shape);
}

LaunchConfig dense_few_config(int64_t numel, Shape shape) {
  return {Entry::DenseFew, dim(ceil_of(numel, int64_t{kThreads} * shape.vector_length)), dim(kThreads)};
}

int64_t blocks_of_set(int64_t numel, bool is_aligned, Shape shape) {
  return ceil_of(numel, int64_t{kThreads} * (is_aligned ? shape.elements_of_thread : shape.elements_one_by_one));
}

int64_t nest_items(const NestProblem& problem, Shape shape, const Limits& limits) {
  const int64_t vectors = problem.outer * problem.inner / shape.vector_length;
  int64_t items = shape.items_of_nest;
  while (items > 1 && (problem.next % items != 0 || vectors / items < full_card(limits) * kThreads)) items /= 2;
  return items;
}

LaunchConfig nest_config(const NestProblem& problem, Shape shape, const Limits& limits) {
  const int64_t numel = problem.outer * problem.inner, vectors = numel / shape.vector_length;
  if (problem.goes_by_vectors && problem.inner % shape.vector_length == 0 && vectors < limits.short_indices)
    return {Entry::Nest, dim(ceil_of(vectors, kThreads * nest_items(problem, shape, limits))), dim(kThreads)};
  LaunchConfig each = nest_any_config(numel, shape);
  if (numel < limits.short_indices) each.entry = Entry::NestEach;
  return each;
}

LaunchConfig nest_any_config(int64_t numel, Shape shape) {
  return {Entry::NestAny, dim(ceil_of(numel, int64_t{kThreads} * shape.elements_one_by_one)), dim(kThreads)};
}

RowLaunchConfig row_config(const RowProblem& problem, Shape shape, const Limits& limits) {
  if (problem.goes_by_segments) return by_segments(problem, shape, limits);
  if (problem.segments * problem.columns == 0) return rows_by_passes(problem, shape, limits);  // rows are empty
  const int64_t length = problem.is_aligned ? shape.vector_length : 1;
  const int64_t items = problem.is_aligned ? shape.elements_of_thread / length : shape.elements_one_by_one;
  const int64_t pieces = ceil_of(problem.segments * problem.columns, length);
  int64_t threads = power_of_two(ceil_of(pieces, items)), tiles = 1;
  if (problem.needs_whole_rows) {
    if (threads > shape.most_threads_of_row) return long_rows(problem, shape, limits);
    // With few rows, each row gets more threads, and each thread fewer elements.
    while (threads < kThreads && threads < pieces && problem.rows * threads < full_card(limits) * kThreads) threads *= 2;
  } else {
    if (problem.has_results_over_rows && problem.rows > 1) {
      if (const auto narrow = narrow_columns(problem, shape, limits)) return *narrow;
    }
    threads = std::min(threads, kWarp);
    tiles = std::max<int64_t>(ceil_of(pieces, threads * items), 1);
    if (tiles > 65535) return long_rows(problem, shape, limits);  // exceeds the limit of a grid's second dimension
  }
  const int64_t at_once = rows_of_block(threads, problem.rows);
  int64_t blocks = std::max<int64_t>(ceil_of(problem.rows, at_once), 1);
  const Entry entry = problem.is_aligned ? Entry::Rows : Entry::RowsEach;
  if (!problem.has_results_over_rows) return {{entry, dim(blocks, tiles), dim(threads, at_once)}};
  // A slice is worth its memory only if it covers several rows.
  constexpr int64_t kRowsOfThread = 4;
  blocks = std::clamp<int64_t>(ceil_of(problem.rows, at_once * kRowsOfThread), 1,
                               std::max<int64_t>(most_slices(threads * at_once, registers_of(problem, entry), shape, limits) / tiles, 1));
  return {{entry, dim(blocks, tiles), dim(threads, at_once)}, blocks == 1 ? 0 : blocks, at_once};
}

RowLaunchConfig any_row_config(RowProblem problem, Shape shape, const Limits& limits) {
  problem.kept_bytes = 0;
  if (problem.goes_by_segments) return by_segments(problem, shape, limits);
  problem.is_aligned = false;
  return rows_by_passes(problem, shape, limits);
}

LaunchConfig merge_config(int64_t count, int64_t stores) {
  return {Entry::Merge, dim(ceil_of(count, kTile), stores), dim(kTile, kTileRows)};
}

}  // namespace hindcast::codegen::cuda
