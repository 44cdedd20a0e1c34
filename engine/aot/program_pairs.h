#pragma once
// The programs of one specialisation: forwards, each with the backwards for gradients of different kinds.

#include "base/fork.h"
#include "engine/aot/program_pair.h"

#include <memory>
#include <mutex>
#include <vector>

namespace hindcast::engine {

/// Safe from many threads.
class ProgramPairs {
 public:
  using Pair = std::shared_ptr<const ProgramPair>;

  /// The programs for the next call; nullptr before the first backward.
  Pair next() const;
  std::vector<Pair> all() const;
  /// The programs for gradients of all results; nullptr before the first backward.
  Pair whole() const;
  /// The programs with the same forward and a backward from gradients like these to those of these primals; nullptr if these have not been
  /// compiled.
  Pair for_gradients(const std::vector<capture::Facts>& tangents, const std::vector<bool>& wants, const ProgramPair& forward) const;
  /// Whether there may be one more backward to gradients of only some primals: a program may want others each time.
  bool has_room_for_some_primals() const;
  /// Adds programs that share one forward; the last one is for the next call. All are added at once, so that no call finds a forward
  /// without its backward.
  void add(std::vector<Pair> made);
  /// Adds programs that are not for the next call.
  void add_beside(Pair made);
  /// A call tried other programs before these. If this happens twice in a row, these become the next call's first.
  void note_miss(const Pair& pair);
  /// Replaces all programs by better ones. Nodes that hold the former ones continue to use them.
  void replace(const ProgramPair& former, Pair pair);

 private:
  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};  // guards what follows
  std::vector<Pair> pairs_;                                         // the programs for the next call first
  std::weak_ptr<const ProgramPair> missed_;                         // the argument of the last note_miss()
};

}  // namespace hindcast::engine
