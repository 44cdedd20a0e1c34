#include "capture/backward/typed_collectors.h"

#include "base/fork.h"

#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <unordered_map>

// An open-addressing table from the address of a type_info to its collector. Addresses are compared
// first: one load from the node's vtable, one multiply, one probe. But a class may have several
// type_info objects, one per shared object that was linked without exporting it, so an address never
// seen before is looked up once by type_info equality, and the answer, also "no collector", is added to
// the table under its own address. Slots are only ever added: readers need no lock.

namespace hindcast::capture {

namespace {

class CollectorTable {
 public:
  CollectorTable() {
    for (const auto block : typed_collectors()) {
      for (const TypedCollector& collector : block) {
        insert(collector.type, &collector);
      }
    }
  }

  const TypedCollector* find(const std::type_info* type) {
    for (size_t slot = first_slot(type);; slot = next_slot(slot)) {
      const std::type_info* seen = slots_[slot].type.load(std::memory_order_acquire);
      if (seen == type) {
        return slots_[slot].collector;
      }
      if (seen == nullptr) {
        return find_new_address(type);
      }
    }
  }

 private:
  // 701 classes in LibTorch 2.11: about one slot in six is used, so most probes end at the first.
  static constexpr size_t kSlots = 4096;

  struct Slot {
    std::atomic<const std::type_info*> type{nullptr};  // published last: a reader that sees it sees the collector
    const TypedCollector* collector = nullptr;
  };

  static size_t first_slot(const std::type_info* type) {
    // Fibonacci hashing: type_info objects are 8 or 16 bytes apart, the product's high bits are not.
    constexpr int kShift = 64 - std::countr_zero(kSlots);
    return static_cast<size_t>((reinterpret_cast<uintptr_t>(type) * uint64_t{0x9E3779B97F4A7C15}) >> kShift);
  }
  static size_t next_slot(size_t slot) { return (slot + 1) % kSlots; }

  void insert(const std::type_info* type, const TypedCollector* collector) {
    size_t slot = first_slot(type);
    while (slots_[slot].type.load(std::memory_order_relaxed) != nullptr) {
      slot = next_slot(slot);
    }
    slots_[slot].collector = collector;
    slots_[slot].type.store(type, std::memory_order_release);
    ++used_;
  }

  // Out of line: otherwise its registers are saved on every call of find().
  [[gnu::noinline]] const TypedCollector* find_new_address(const std::type_info* type) {
    std::lock_guard lock(mutex_);
    if (auto known = overflow_.find(type); known != overflow_.end()) {
      return known->second;
    }
    const TypedCollector* collector = find_equal(*type);
    // At most half full, so that probes stay short; beyond that (thousands of user classes) the map is used.
    if (used_ < kSlots / 2) {
      insert_once(type, collector);
    } else {
      overflow_.emplace(type, collector);
    }
    return collector;
  }

  // Another thread may have added the address between our probe and the lock.
  void insert_once(const std::type_info* type, const TypedCollector* collector) {
    for (size_t slot = first_slot(type);; slot = next_slot(slot)) {
      const std::type_info* seen = slots_[slot].type.load(std::memory_order_relaxed);
      if (seen == type) {
        return;
      }
      if (seen == nullptr) {
        insert(type, collector);
        return;
      }
    }
  }

  static const TypedCollector* find_equal(const std::type_info& type) {
    for (const auto block : typed_collectors()) {
      for (const TypedCollector& collector : block) {
        if (*collector.type == type) {
          return &collector;
        }
      }
    }
    return nullptr;
  }

  std::array<Slot, kSlots> slots_;
  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};  // guards used_ and overflow_, and serialises additions to slots_
  size_t used_ = 0;
  std::unordered_map<const std::type_info*, const TypedCollector*> overflow_;
};

// In place of a `static`, see base::MadeOnce. Device threads may still be running backwards at exit.
constinit base::MadeOnce<CollectorTable> table;

}  // namespace

const TypedCollector* find_typed_collector(const torch::autograd::Node& node) { return table.get().find(&typeid(node)); }

}  // namespace hindcast::capture
