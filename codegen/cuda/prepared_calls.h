#pragma once
// What a call worked out for its launches, kept for the next call whose tensors lie alike: all but addresses and scalars.

#include "codegen/cuda/arguments.h"
#include "codegen/cuda/schedule.h"
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

/// The addresses of one call, at places that are the same in each call of a group: loads, stores, leaves, memory on the way.
using Addresses = c10::SmallVector<char*, 32>;

/// Adds two for each leaf that the body has: of its sum, and of the term that is added. Null where nobody wants the sum, and where there is
/// nothing to add to.
void add_leaves(Addresses& addresses, const Group& group, const LeafWrites* leaves);

/// A kernel's argument before addresses and scalars are known.
class ArgumentPattern : private Arguments {
 public:
  using Arguments::add;
  using Arguments::add_table;
  using Arguments::lead_outside;

  /// What is at this place of a call's addresses, and `offset` bytes on. Null stays null.
  void add_address(size_t place, int64_t offset = 0) {
    places_.push_back(static_cast<uint16_t>(place));
    Arguments::add_address(reinterpret_cast<const void*>(offset));
  }
  /// Places from `first` to before `end`.
  void add_addresses(size_t first, size_t end) {
    for (size_t place = first; place < end; ++place) add_address(place);
  }
  /// Room for a call's scalars. At most once.
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
  Schedule schedule;
  uint32_t shared_bytes = 0;
  ArgumentPattern argument = {};
};

/// All launches of one call, in order.
struct PreparedCall {
  c10::SmallVector<PreparedLaunch, 1> launches;
  int64_t partial_bytes = 0, number_bytes = 0;  // of memory on the way
  bool lasts = true;                            // false: operands were copied, or the call waits for an entry point
};

/// How the tensors of a call lie. Calls of a group with equal keys have equal launches, once all entry points are there that they want.
class LayoutKey {
 public:
  void add(int64_t number) { numbers_.push_back(number); }
  void add(at::IntArrayRef numbers) { numbers_.append(numbers.begin(), numbers.end()); }
  void add_load(const at::Tensor& tensor, const Access& access, const capture::Env& env);
  /// Which addresses are no multiples of the bytes of an access to them. `accesses`: of the first ones; all others have kAccess.
  void add_alignment(const Addresses& addresses, c10::ArrayRef<int64_t> accesses);

  uint64_t hash() const;
  bool operator==(const LayoutKey& other) const { return numbers_ == other.numbers_; }

 private:
  c10::SmallVector<int64_t, 64> numbers_;
};

/// The last few layouts of a call that came again soon. Safe from many threads, of which none waits: one that finds another inside goes
/// without, and so does the child of a fork that found one inside.
class PreparedCalls {
 public:
  /// Null: there is none. `comes_again`: it was asked for not long ago, and is worth to be kept.
  std::shared_ptr<const PreparedCall> find(const LayoutKey& key, bool& comes_again);
  void keep(const LayoutKey& key, PreparedCall&& call);

  /// By estimate, of a call with so many tensors and launches.
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
  std::array<uint64_t, kMost> missed_ = {};  // hashes. More layouts than kMost in turn are never found here, and so cost no memory
  size_t next_kept_ = 0, next_missed_ = 0;
};

/// Calls of this thread that found what an earlier one had prepared.
uint64_t& prepared_calls_found();

}  // namespace hindcast::codegen::cuda
