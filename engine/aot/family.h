#pragma once
// What is known of calls of a function that differ in sizes and layouts alone.

#include "engine/aot/specialisation.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hindcast::engine {

class Family : public std::enable_shared_from_this<Family> {
 public:
  using List = std::vector<std::shared_ptr<Specialisation>>;

  Family(const AotOptions& options, std::string facts) : options_(options), facts_(std::move(facts)) {}

  const std::string& facts() const { return facts_; }  // FunctionCall::facts

  /// The one to ask first comes first.
  std::shared_ptr<const List> all() const;
  /// Of those that wait for their backward, the oldest go: as many are kept as programs, AotOptions::limit.
  void add(const std::shared_ptr<Specialisation>& specialisation);
  /// How many there are but for those that wait for their backward.
  size_t programs() const;
  void remove(const Specialisation& specialisation);
  /// A specialisation of this family has got programs: is there one for other sizes too?
  void learned(const Specialisation& specialisation);
  /// True if the joint program of a trace at other sizes is that of a fit, which serves these sizes from now on.
  bool proves_a_fit(const Specialisation& other, const capture::Joint& joint, const std::vector<capture::Facts>& tangents);
  /// The function keeps a tensor that it made: a later call would find another one there. It is traced anew, once that may be done with
  /// (a mask that is made in the first call), and runs eagerly where it is not.
  void escaped(Specialisation& specialisation);
  /// A call that was traced kept a tensor. True: the next one is to be traced all the same.
  bool note_escape();
  /// A call matched, but for a size that depends on data: is another program to be traced? As many as AotOptions::limit are, in all.
  bool may_trace_for_data_sizes();
  /// No program was for the call's sizes. True where that came again and again: what programs do up to there is in vain.
  bool data_sizes_are_always_others() {
    constexpr uint32_t kInVain = 8;
    return others_in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1 >= kInVain;
  }
  /// It ran a call that another one, which comes before it, had missed. Twice in a row, it comes first.
  void was_found_late(const std::shared_ptr<Specialisation>& specialisation);
  /// A call had arguments that are windows of one tensor (windows.h), and did not write to them.
  bool reads_windows() const { return reads_windows_.load(std::memory_order_relaxed); }
  void read_windows() { reads_windows_.store(true, std::memory_order_relaxed); }
  /// How the next trace has to be made.
  enum class Sizes : uint8_t {
    Free,    // numbers of sizes are looked for by a fit
    Plain,   // without symbols: a fit is to be compared with it, or made of it
    Pinned,  // there is no fit: a size that is asked for as a number stays what it is
  };
  /// For a call with these facts.
  Sizes sizes_for(const capture::Facts& row) const;

 private:
  static bool may_be_compared(const Specialisation& second, const std::vector<int64_t>& values);
  void fit_to(const Specialisation& second);
  std::shared_ptr<Specialisation> fit(const Specialisation& first, const Specialisation& second, const std::vector<int64_t>& values) const;
  void set_fit(std::shared_ptr<Specialisation> fitted, bool may_be_another);

  const AotOptions& options_;
  const std::string facts_;
  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Cache};  // of what follows
  std::shared_ptr<const List> all_ = std::make_shared<const List>();
  bool may_fit_ = true;
  bool wants_plain_ = false;  // there is no program without symbols that another may be compared with
  size_t escapes_ = 0, traces_for_data_sizes_ = 0;
  std::weak_ptr<Specialisation> found_late_;  // by the last call that found one so
  std::atomic<uint32_t> others_in_a_row_ = 0;
  std::atomic<bool> reads_windows_ = false;
  std::shared_ptr<Specialisation> fitted_;  // among all_ once a third size has confirmed it
};

}  // namespace hindcast::engine
