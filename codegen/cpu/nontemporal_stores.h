#pragma once
// Writes large results past the caches. An ordinary store to a line that is in no cache reads the line first. If the result is too large to
// stay in a cache until it is read, that adds a third to the traffic of an op with two operands. Kernels are not aware of
// this: they write a few elements to a buffer in the L1 cache, which is then copied to the result by non-temporal stores.

#include "codegen/kernel/launch_args.h"

#include <vector>

namespace hindcast::codegen::cpu {

/// Elements per pass through the buffer.
inline constexpr int64_t kNontemporalAtOnce = 1024;

class NontemporalStores {
 public:
  /// Whether the processor has such stores, and they pay for a result of so many bytes.
  static bool are_worth_it(int64_t bytes);

  /// Adds a result. `pointer`: its index in the kernel's pointers; `width`: bytes of an element.
  void add(size_t pointer, int64_t width) { stores_.push_back({pointer, width}); }
  /// The same, unless the result has the memory of one of the first `loads` pointers: that is in a cache already.
  void add_new(const Pointers& pointers, size_t loads, size_t pointer, int64_t width);
  bool empty() const { return stores_.empty(); }

  /// The buffer of one thread. Other threads are guaranteed to see its stores only after it is destroyed.
  class Block {
   public:
    /// `elements`: the largest number per result.
    Block(const NontemporalStores& nontemporal, int64_t elements);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    /// Redirects the pointers to this buffer.
    void take_place_of(Pointers& pointers);
    /// Copies the first `elements` elements to where the pointers pointed before.
    void write(int64_t elements) const;

   private:
    struct Place {
      size_t pointer;
      int64_t width;
      char* here;
      char* there;
    };
    std::vector<char> memory_;
    c10::SmallVector<Place, 4> places_;
  };

 private:
  struct Store {
    size_t pointer;
    int64_t width;
  };
  c10::SmallVector<Store, 4> stores_;
};

}  // namespace hindcast::codegen::cpu
