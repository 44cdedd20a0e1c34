#pragma once
// Caches the launches that a call computed, except for addresses and scalars, for later calls whose tensors have the same layout.

#include "codegen/cuda/arguments.h"
#include "codegen/cuda/launch_config.h"
#include "codegen/fuse/group.h"
#include "codegen/kernel/leaf_requests.h"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace hindcast::codegen::cuda {

/// The addresses of one call, at indices that are the same in each call of a group: loads, stores, leaves, scratch memory.
using Addresses = c10::SmallVector<char*, 32>;

/// Adds two addresses for each leaf of the body: of its sum, and of the term that is added. nullptr if the sum is not wanted, and if there
/// is no term.
void add_leaves(Addresses& addresses, const Group& group, const LeafWrites* leaves);

/// A kernel's argument before addresses and scalars are known.
class ArgumentPattern : private Arguments {
 public:
  using Arguments::add;
  using Arguments::add_part;
  using Arguments::lead_outside;

  /// The address at index `place` of a call's addresses, plus `offset` bytes. nullptr remains nullptr.
  void add_address(size_t place, int64_t offset = 0) {
    places_.push_back(static_cast<uint16_t>(place));
    Arguments::add_address(reinterpret_cast<const void*>(offset));
  }
  /// The addresses at [first, end).
  void add_addresses(size_t first, size_t end) {
    for (size_t place = first; place < end; ++place) add_address(place);
  }
  /// Reserves words for a call's scalars. Call at most once.
  void leave_scalars(size_t count) {
    first_scalar_ = bytes() / sizeof(uint64_t);
    scalars_ = count;
    for (size_t i = 0; i < count; ++i) add(int64_t{0});
  }

  Arguments with(const Addresses& addresses, at::ScalarType compute, c10::ArrayRef<double> scalars) const;

 private:
  c10::SmallVector<uint16_t, 16> places_;  // by Arguments::pointers()
  size_t first_scalar_ = 0, scalars_ = 0;
};

struct PreparedLaunch {
  LaunchConfig config;
  uint32_t shared_bytes = 0;
  ArgumentPattern argument = {};
};

/// All launches of one call, in order.
struct PreparedCall {
  c10::SmallVector<PreparedLaunch, 1> launches;
  int64_t partial_bytes = 0, number_bytes = 0;  // of scratch memory
  bool lasts = true;                            // false: not reusable, since operands were copied or an entry point is missing
};

/// The layouts of a call's tensors. Calls of a group with equal keys have equal launches, once all their entry points are compiled.
class LayoutKey {
 public:
  void add(int64_t number) { numbers_.push_back(number); }
  void add(at::IntArrayRef numbers) { numbers_.append(numbers.begin(), numbers.end()); }
  void add_load(const at::Tensor& tensor, const Access& access, const capture::Env& env);
  /// Adds which addresses are not aligned to the bytes of one access. `accesses`: bytes for the first addresses; all others have kAccess.
  void add_alignment(const Addresses& addresses, c10::ArrayRef<int64_t> accesses);

  uint64_t hash() const;
  bool operator==(const LayoutKey& other) const { return numbers_ == other.numbers_; }

 private:
  c10::SmallVector<int64_t, 64> numbers_;
};

/// The prepared launches of a few recent, recurring layouts of a call. Thread-safe and non-blocking: a thread that finds the lock held
/// treats it as a miss, and so does the child of a fork that happened while the lock was held.
class PreparedCalls {
 public:
  /// nullptr if the key is not cached; `comes_again` is then set if the key was recently missed before, so that the call is worth keeping.
  std::shared_ptr<const PreparedCall> find(const LayoutKey& key, bool& comes_again);
  void keep(const LayoutKey& key, PreparedCall&& call);

  /// The estimated bytes for a call with so many tensors and launches.
  static size_t footprint(size_t tensors, size_t launches);

 private:
  static constexpr size_t kMost = 4;

  struct Kept {
    LayoutKey key;
    uint64_t hash;
    PreparedCall call;
  };
  std::mutex inside_;
  std::array<std::shared_ptr<const Kept>, kMost> kept_;
  // Hashes. A call that cycles through more than kMost layouts finds none of them here, keeps nothing, and so costs no memory.
  std::array<uint64_t, kMost> missed_ = {};
  size_t next_kept_ = 0, next_missed_ = 0;
};

/// Number of hits on this thread.
uint64_t& prepared_calls_found();

}  // namespace hindcast::codegen::cuda
