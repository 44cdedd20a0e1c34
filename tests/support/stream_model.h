#pragma once
// Who wrote and read which memory, on which stream, and what is known to be ordered.

#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace hindcast::tests {

class StreamModel {
 public:
  using Clock = std::map<uint64_t, int64_t>;  // by stream: up to which of its works
  struct Work {
    uint64_t stream = 0;
    int64_t number = 0;
    std::string what;
  };

  /// Memory of one storage.
  struct Block {
    c10::Stream home;  // where it was allocated: it is reused there
    int64_t size = 0;
    Work written;
    std::map<uint64_t, Work> read;  // the last of each stream
    std::set<uint64_t> recorded;    // streams passed to the allocator's record_stream
  };

  static StreamModel& of_process();

  Block* allocate(const c10::Stream& on, int64_t size);
  void free(Block* block);
  void record_stream(Block& block, const c10::Stream& stream);

  /// One piece of work on a stream.
  void run(const c10::Stream& on, const std::string& what, const std::vector<Block*>& reads, const std::vector<Block*>& writes);

  std::shared_ptr<const Clock> record_event(const c10::Stream& stream);
  void wait(const c10::Stream& stream, const Clock& event);
  /// `later` continues when the work of `earlier` so far is done.
  void order(const c10::Stream& earlier, const c10::Stream& later);
  /// The host waits: later work on any stream comes after it.
  void synchronize(const c10::Stream& stream);
  void synchronize_all();

  std::vector<std::string> take_unordered();

 private:
  int64_t step(uint64_t stream);
  bool is_before(const Work& work, uint64_t stream);
  void complain(const std::string& what, uint64_t on, const std::string& kind, const Work& other);

  std::mutex mutex_;
  std::map<uint64_t, Clock> known_;  // by stream: what it has waited for, itself included
  Clock done_;                       // what the host has waited for
  std::vector<std::string> unordered_;
};

}  // namespace hindcast::tests
