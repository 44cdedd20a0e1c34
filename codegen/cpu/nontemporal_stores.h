#pragma once
// Large results that are written past the caches. A store to a line that no cache holds reads the line first; of a result that no cache
// could hold until somebody reads it that is a third of the traffic of an op with two operands. Kernels know nothing of this: they write a
// few elements to memory that stays in the innermost cache, from where those go to their place.

#include "codegen/kernel/launch_args.h"

#include <vector>

namespace hindcast::codegen::cpu {

/// Elements that go by at once.
inline constexpr int64_t kNontemporalAtOnce = 1024;

class NontemporalStores {
 public:
  /// The processor has such stores, and they pay for a result of so many bytes.
  static bool are_worth_it(int64_t bytes);

  /// `pointer`: its number among a kernel's; `width`: bytes of an element.
  void add(size_t pointer, int64_t width) { stores_.push_back({pointer, width}); }
  /// The same, unless it is one of the first `loads` pointers: what is written to the memory of an operand is in a cache by then.
  void add_new(const Pointers& pointers, size_t loads, size_t pointer, int64_t width);
  bool empty() const { return stores_.empty(); }

  /// One thread's. Others see what was stored once it is destroyed.
  class Block {
   public:
    /// `elements` of each at most.
    Block(const NontemporalStores& nontemporal, int64_t elements);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    /// From now on the pointers point here.
    void take_place_of(Pointers& pointers);
    /// The first elements that are here, to where the pointers pointed.
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
