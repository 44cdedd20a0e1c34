#include "codegen/cpu/product_times.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <ctime>
#include <limits>

namespace hindcast::codegen::cpu {
namespace {

// The number of entries, one per class of sizes; a class with the same index replaces the entry.
constexpr size_t kEntries = 4096;
// Measurements that an entry is the minimum of: a busy machine spoils one, but not all of them.
constexpr uint64_t kMeasurements = 6, kMeasurementsOfLong = 2;
constexpr int64_t kLongRun = 1000000;  // ns

uint64_t in_steps(int64_t ns) {
  return static_cast<uint64_t>(std::clamp<long>(std::lround(std::log2(std::max<double>(1, static_cast<double>(ns))) * 64), 0, 0xfff));
}

// An entry, from the lowest bit: both times in steps of 2^(1/64), 12 bits each; measurements, 4 bits; the class's hash.
struct Entry {
  uint64_t ours = 0, atens = 0, measurements = 0, hash = 0;

  static Entry of(uint64_t bits) { return {bits & 0xfff, bits >> 12 & 0xfff, bits >> 24 & 0xf, bits >> 28}; }
  uint64_t bits() const { return ours | atens << 12 | measurements << 24 | hash << 28; }
  bool is_measured() const {
    const bool is_long = measurements != 0 && ours >= in_steps(kLongRun);
    return measurements >= (is_long ? kMeasurementsOfLong : kMeasurements);
  }
};

std::array<std::atomic<uint64_t>, kEntries> entries{};

std::atomic<ProductChoice> fixed_choice = ProductChoice::Measured;

uint64_t hash_of(const ProductSizes& sizes) {
  uint64_t hash = 0;
  for (const int64_t part :
       {sizes.batch, sizes.rows, sizes.columns, sizes.depth, sizes.kind, static_cast<int64_t>(at::get_num_threads())}) {
    hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

/// The place of a class of sizes in the table.
class Place {
 public:
  explicit Place(const ProductSizes& sizes) : hash_(hash_of(class_of(sizes))) {}
  Entry entry() const {
    const Entry entry = Entry::of(at().load(std::memory_order_relaxed));
    return entry.hash == hash_ >> 28 && entry.measurements != 0 ? entry : Entry{0xfff, 0xfff, 0, hash_ >> 28};
  }
  void store(const Entry& entry) { at().store(entry.bits(), std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t>& at() const { return entries[hash_ % kEntries]; }
  uint64_t hash_;
};

// Rounds up to kSignificantBits bits; sizes up to `exact` are not rounded.
int64_t round_up(int64_t size, int64_t exact) {
  constexpr int kSignificantBits = 4;
  if (size <= exact) return size;
  const int shift = std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(size - 1))) - kSignificantBits);
  return (((size - 1) >> shift) + 1) << shift;
}

int64_t now_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

// The minimum time of several runs.
int64_t ns_of(c10::function_ref<void()> run) {
  constexpr int kMostRuns = 4;
  const clockid_t clock = at::get_num_threads() > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
  run();  // warms the caches
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kMostRuns && (i < 1 || least < kLongRun); ++i) {
    const int64_t start = now_ns(clock);
    run();
    least = std::min(least, now_ns(clock) - start);
  }
  return least;
}

}  // namespace

ProductSizes class_of(const ProductSizes& sizes) {
  constexpr int64_t kBlockRows = 8, kVector = 16, kExact = 16;
  ProductSizes one = sizes;
  one.batch = round_up(sizes.batch, kExact);
  const int64_t blocks = (sizes.rows + kBlockRows - 1) / kBlockRows;
  one.rows = sizes.rows <= kBlockRows ? sizes.rows : round_up(blocks, kExact) * kBlockRows;
  one.depth = round_up(sizes.depth, kExact);
  const bool fills_vectors = sizes.columns % kVector == 0;
  one.columns = fills_vectors ? round_up(sizes.columns / kVector, kExact) * kVector : round_up(sizes.columns, kExact);
  one.kind = 2 * sizes.kind + (fills_vectors ? 1 : 0);
  return one;
}

std::optional<bool> find_choice(const ProductSizes& sizes) {
  if (const ProductChoice choice = fixed_choice.load(std::memory_order_relaxed); choice != ProductChoice::Measured)
    return choice == ProductChoice::Ours;
  const Entry entry = Place(sizes).entry();
  return entry.is_measured() ? std::optional(entry.ours <= entry.atens) : std::nullopt;
}

bool is_ours_faster(const ProductSizes& sizes, c10::function_ref<void()> ours, c10::function_ref<void()> atens) {
  if (const auto choice = find_choice(sizes)) return *choice;
  Place place(sizes);
  Entry entry = place.entry();
  entry.atens = std::min(entry.atens, in_steps(ns_of(atens)));
  entry.ours = std::min(entry.ours, in_steps(ns_of(ours)));
  ++entry.measurements;
  place.store(entry);
  return entry.ours <= entry.atens;
}

void set_product_choice(ProductChoice choice) { fixed_choice.store(choice, std::memory_order_relaxed); }

}  // namespace hindcast::codegen::cpu
