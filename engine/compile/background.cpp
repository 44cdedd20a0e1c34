#include "engine/compile/background.h"

#include "base/fork.h"
#include "base/log.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace hindcast::engine {
namespace {

std::atomic<bool> ends = false;

class Worker final : private base::ForkLock {
 public:
  Worker() : ForkLock(base::ForkRank::Background) { enroll(); }

  bool add(Job job) {
    auto added = std::make_shared<const Job>(std::move(job));
    Jobs dropped;  // destroyed after the lock is released: jobs hold tensors and kernels
    std::unique_lock lock(mutex_);
    if (stopping_) return true;
    if (jobs_.size() >= sweep_at_ || !has_room(added->bytes)) dropped = sweep();
    if (!has_room(added->bytes)) return false;
    waiting_bytes_ += added->bytes;
    jobs_.push_back({std::move(added), number_of_next()});
    start();
    const bool is_stuck = !thread_.joinable() && !std::exchange(has_warned_, true);
    changed_.notify_all();
    lock.unlock();
    if (is_stuck) HC_LOG(CompiledAutograd, Warning, "kernels wait to be compiled: this process could not start a thread");
    return true;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    start();
    // Not those that other threads add meanwhile, which may never end.
    const uint64_t last = added_;
    const auto is_done = [&] {
      return !(busy_ && running_number_ <= last) && std::none_of(jobs_.begin(), jobs_.end(), [&](auto& job) { return job.number <= last; });
    };
    if (is_done()) return;
    // On a machine with other work the low-priority thread gets next to no time. While somebody waits it takes no jobs, and a thread of
    // the waiter's priority runs them. Not the waiter itself: its autograd modes must not apply to them.
    bool is_over = false;
    std::thread helper = try_thread([&] { run_until(is_over, /*yields=*/false); });
    if (!helper.joinable() && !thread_.joinable()) return;
    const size_t helpers = helper.joinable() ? 1 : 0;
    waiters_ += helpers;
    set_niceness(0);  // for the job that it runs
    changed_.wait(lock, is_done);
    is_over = true;
    waiters_ -= helpers;
    if (waiters_ == 0) set_niceness(kNiceness);
    changed_.notify_all();
    lock.unlock();
    if (helpers != 0) helper.join();
  }

  // At exit: finishes the running job and drops the rest. LLVM must not be in use when its globals are destroyed.
  void stop() {
    ends = true;
    Jobs dropped;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      for (Queued& queued : jobs_) dropped.push_back(std::move(queued.job));
      jobs_.clear();
      changed_.notify_all();
    }
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();  // it was the last thread of a process whose main thread had ended
    } else if (thread_.joinable()) {
      thread_.join();
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !busy_; });  // a waiter's thread may still run one
  }

 private:
  using Jobs = std::vector<std::shared_ptr<const Job>>;
  struct Queued {
    std::shared_ptr<const Job> job;
    uint64_t number = 0;  // in the order in which they were added; a job that another one adds has that one's
  };
  static constexpr size_t kFirstSweep = 64;
  static constexpr int kNiceness = 10;
  static constexpr std::chrono::seconds kMostIdle{1};

  bool has_room(size_t bytes) const { return bytes == 0 || waiting_bytes_ == 0 || waiting_bytes_ + bytes <= kMostWaitingBytes; }

  // Removes jobs that are no longer wanted.
  Jobs sweep() {
    const auto unwanted =
        std::stable_partition(jobs_.begin(), jobs_.end(), [](const auto& each) { return !each.job->is_wanted || each.job->is_wanted(); });
    Jobs dropped;
    for (auto each = unwanted; each != jobs_.end(); ++each) dropped.push_back(std::move(each->job));
    jobs_.erase(unwanted, jobs_.end());
    for (const auto& job : dropped) waiting_bytes_ -= job->bytes;
    sweep_at_ = std::max(kFirstSweep, 2 * jobs_.size());
    return dropped;
  }

  uint64_t number_of_next() { return busy_ && running_on_ == std::this_thread::get_id() ? running_number_ : ++added_; }

  // Without a thread the jobs stay queued, and programs run through ATen. The next job tries again.
  void start() {
    if (jobs_.empty()) return;
    if (std::exchange(has_ended_, false)) thread_.join();
    if (!thread_.joinable()) thread_ = try_thread([this] { work(); });
  }

  // No thread if the process may not have another one.
  template <class Function>
  static std::thread try_thread(Function function) {
    try {
      return std::thread(std::move(function));
    } catch (const std::system_error&) {
      return {};
    }
  }

  void work() {
    {
      const std::lock_guard lock(mutex_);
      id_of_thread_ = static_cast<id_t>(syscall(SYS_gettid));
      niceness_of_program_ = getpriority(PRIO_PROCESS, id_of_thread_);
      set_niceness(kNiceness);
    }
    run_until(stopping_, /*yields=*/true);
  }

  // The worker's thread has a lower priority than training, except while another thread waits for it. Raising a priority needs a privilege;
  // without it, the priority stays low. On Linux, PRIO_PROCESS with a thread id sets that thread's niceness. Requires the mutex.
  void set_niceness(int niceness) const {
    if (id_of_thread_ != 0) setpriority(PRIO_PROCESS, id_of_thread_, niceness_of_program_ + niceness);
  }

  // Runs jobs in order, one at a time with other threads. `yields`: takes no job while somebody waits, and returns after kMostIdle without
  // one. Otherwise a process whose main thread has called pthread_exit() would never end: this would be its last thread. The mutex guards
  // `is_over`.
  void run_until(const bool& is_over, bool yields) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      const auto has_work = [&] { return is_over || (!jobs_.empty() && !busy_ && !(yields && waiters_ != 0)); };
      if (!yields) {
        changed_.wait(lock, has_work);
      } else if (!changed_.wait_for(lock, kMostIdle, has_work)) {
        if (!jobs_.empty()) continue;
        has_ended_ = true;
        id_of_thread_ = 0;
        return;
      }
      if (is_over) return;
      running_ = std::move(jobs_.front().job);
      running_number_ = jobs_.front().number;
      running_on_ = std::this_thread::get_id();
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      if (!running_->is_wanted || running_->is_wanted()) running_->run();
      lock.lock();
      waiting_bytes_ -= running_->bytes;
      auto done = std::move(running_);
      lock.unlock();
      done.reset();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  void before_fork() override {
    mutex_.lock();
    if (busy_) set_niceness(0);  // the fork waits until the thread is out of the compiler
  }
  void after_fork_in_parent() override {
    if (busy_ && waiters_ == 0) set_niceness(kNiceness);
    mutex_.unlock();
  }
  void after_fork_in_child() override {
    id_of_thread_ = 0;
    if (running_) jobs_.push_front({std::move(running_), running_number_});
    running_ = nullptr;
    busy_ = false;
    waiters_ = 0;
    has_ended_ = false;
    mutex_.unlock();
    new (&changed_) std::condition_variable;
    new (&thread_) std::thread;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Queued> jobs_;
  uint64_t added_ = 0;  // the largest number
  std::shared_ptr<const Job> running_;
  uint64_t running_number_ = 0;      // if busy_
  std::thread::id running_on_ = {};  // the same
  size_t waiting_bytes_ = 0;         // of `jobs_` and `running_`
  size_t sweep_at_ = kFirstSweep;
  size_t waiters_ = 0;  // threads in wait()
  std::thread thread_;
  id_t id_of_thread_ = 0;
  int niceness_of_program_ = 0;
  bool busy_ = false, stopping_ = false, has_warned_ = false;
  bool has_ended_ = false;  // the thread has left run_until()
};

Worker& worker() {
  static constinit base::MadeOnce<Worker> worker;
  return worker.by([] {
    std::atexit([] { engine::worker().stop(); });
    return Worker();
  });
}

}  // namespace

bool run_in_background(Job job) { return worker().add(std::move(job)); }
void wait_for_background() { worker().wait(); }
void stop_background() { worker().stop(); }
bool process_ends() { return ends.load(std::memory_order_relaxed); }

}  // namespace hindcast::engine
