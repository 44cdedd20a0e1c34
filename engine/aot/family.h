#pragma once
// The specialisations of a function for calls that differ only in sizes and layouts.

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

  /// In the order in which they are tried.
  std::shared_ptr<const List> all() const;
  /// Of the specialisations that wait for their first backward, keeps the newest AotOptions::limit.
  void add(const std::shared_ptr<Specialisation>& specialisation);
  /// The number of specialisations, not counting those that wait for their first backward.
  size_t programs() const;
  void remove(const Specialisation& specialisation);
  /// A specialisation of this family has got its programs. Tries to fit one program to its sizes and those of another.
  void on_programs(const Specialisation& specialisation);
  /// True if the joint program of a trace at other sizes is that of a fit, which serves these sizes from now on.
  bool proves_a_fit(const Specialisation& other, const capture::Joint& joint, const std::vector<capture::Facts>& tangents);
  /// The function keeps a tensor that it made, so a later call would find a stale one. Traces it again, in case only the first call does
  /// that (such as one that creates a mask); if it keeps happening, the function runs eagerly.
  void on_escape(Specialisation& specialisation);
  /// A traced call kept a tensor. Returns true if the next call is to be traced all the same.
  bool note_escape();
  /// A call matched except for a data-dependent size. Returns true if another program may be traced for it: AotOptions::limit in all.
  bool may_trace_for_data_sizes();
  /// Calls for whose data-dependent sizes no program held.
  CallsInVain& with_other_data_sizes() { return with_other_data_sizes_; }
  /// `specialisation` ran a call after an earlier one in the list did not hold. If this happens twice in a row, it moves to the front.
  void note_late_find(const std::shared_ptr<Specialisation>& specialisation);
  /// All later calls run the function eagerly.
  void give_up() { is_eager_.store(true, std::memory_order_relaxed); }
  bool is_eager() const { return is_eager_.load(std::memory_order_relaxed); }
  /// True if a call had overlapping arguments (windows.h) and did not write to them.
  bool reads_windows() const { return reads_windows_.load(std::memory_order_relaxed); }
  void read_windows() { reads_windows_.store(true, std::memory_order_relaxed); }
  /// How the next trace treats sizes.
  enum class Sizes : uint8_t {
    Free,    // sizes read as numbers do not guard: a fit will find which numbers are sizes
    Plain,   // without symbols, for comparison with a fit or as its input
    Pinned,  // no fit is possible: a size read as a number becomes static
  };
  /// How the next trace of a call with these facts treats sizes.
  Sizes sizes_for(const capture::Facts& row) const;

 private:
  static constexpr size_t kMostRefuted = 3;

  static bool may_be_compared(const Specialisation& second, const std::vector<int64_t>& values);
  void fit_to(const Specialisation& second);
  /// `is_too_small`: as for fit.h.
  std::shared_ptr<Specialisation> fit(const Specialisation& first, const Specialisation& second, const std::vector<int64_t>& values,
                                      bool& is_too_small) const;
  void set_fit(std::shared_ptr<Specialisation> fitted, bool may_be_another);
  /// Returns true the first time.
  bool confirm(const std::shared_ptr<Specialisation>& fitted);
  /// Drops the fit unless it has been confirmed.
  void refute(const std::shared_ptr<Specialisation>& fitted);

  const AotOptions& options_;
  const std::string facts_;
  CallsInVain with_other_data_sizes_;
  std::atomic<bool> reads_windows_ = false, is_eager_ = false;
  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Cache};  // guards what follows
  std::shared_ptr<const List> all_ = std::make_shared<const List>();
  bool may_fit_ = true;
  bool wants_plain_ = false;  // a program without symbols is needed, to compare others with
  size_t escapes_ = 0, traces_for_data_sizes_ = 0;
  std::weak_ptr<Specialisation> found_late_;  // the argument of the last note_late_find()
  std::shared_ptr<Specialisation> fitted_;    // in all_ once a third size has confirmed it
  bool is_fit_confirmed_ = false;
  size_t refuted_ = 0;  // fits
};

}  // namespace hindcast::engine
