#include "engine/fused_plans.h"

#include "codegen/aten_call.h"
#include "codegen/cpu/check_kernel.h"
#include "codegen/cpu/kernels.h"
#include "codegen/fuse/fuse.h"
#include "codegen/passes/pipeline.h"
#include "engine/base/log.h"
#include "engine/reproducer.h"
#include "engine/stats_recorder.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace hindcast::engine {
namespace {

struct WrongPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The process ends: whoever waits for the background thread must not wait for all kernels of a large graph.
std::atomic<bool> process_ends = false;
struct Cancelled {};

// The optimised graph against the capture, to the bit but for what the passes do not keep.
void verify(const codegen::Optimised& optimised, const capture::ReplayCheck& check) {
  capture::ReplayCheck expected = check;
  for (auto& [value, tensor] : expected.results) value = optimised.now(value);
  const auto wrong =
      expected.find_difference(*optimised.graph, optimised.keeps_signs_of_zeros ? capture::Zeros::Signed : capture::Zeros::Unsigned);
  if (!wrong) return;
  std::unordered_map<uint32_t, at::Tensor> given;
  for (const auto& [value, tensor] : check.inputs) given[value.index] = tensor;
  const std::string folder = write_reproducer({*optimised.graph, given, *wrong});
  throw WrongPlan(base::format("behind the passes over it, {}{}{}\n{}", *wrong, folder.empty() ? "" : "\nwhat shows it is in ", folder,
                               optimised.graph->print()));
}

// Every kernel against ATen, on what the capture was given.
void verify(const capture::Graph& graph, const codegen::Schedule& schedule,
            const std::vector<std::shared_ptr<const codegen::CpuKernel>>& kernels, const capture::ReplayCheck& check) {
  const auto values = check.replay(graph);
  for (size_t i = 0; i < schedule.groups.size(); ++i) {
    const codegen::Group& group = schedule.groups[i];
    const auto wrong = codegen::find_difference(graph, group, kernels[i], values);
    if (!wrong) continue;
    const std::string folder = write_reproducer({graph, values, *wrong, &group});
    throw WrongPlan(base::format("{}{}{}\n{}\n{}", *wrong, folder.empty() ? "" : "\nwhat shows it is in ", folder,
                                 codegen::cpu_source(group.body), graph.print()));
  }
}

void log_groups(const codegen::Schedule& schedule, const capture::Graph& graph) {
  if (!base::enabled(base::Channel::Fusion, base::Level::Info)) return;
  for (const codegen::Group& group : schedule.groups) {
    HC_LOG(Fusion, Info, "graph {}: {} ops in one kernel{}, {} loads, {} stores; it stopped growing at {}", graph.id, group.members.size(),
           group.body.by_rows ? " by rows" : "", group.loads.size(), group.stores.size(), group.stopped);
  }
}

std::vector<std::shared_ptr<const codegen::CpuKernel>> kernels_of(const codegen::Schedule& schedule) {
  std::vector<std::shared_ptr<const codegen::CpuKernel>> kernels;
  for (const codegen::Group& group : schedule.groups) {
    if (process_ends) throw Cancelled();
    std::string why_not;
    kernels.push_back(codegen::cpu_kernel(group.body, why_not));
    if (!kernels.back()) throw std::runtime_error(why_not);
  }
  return kernels;
}

void make_plan(const Variant& variant, const FuseRequest& request) {
  const codegen::Optimised optimised = codegen::optimise(variant.shared_graph(), request.replay == Replay::GroupsThroughAten);
  if (request.check && optimised.graph != variant.shared_graph()) verify(optimised, *request.check);
  const auto& graph = optimised.graph;
  const codegen::Schedule schedule = codegen::fuse(*graph);
  log_groups(schedule, *graph);
  if (schedule.groups.empty() && optimised.graph == variant.shared_graph()) return;
  codegen::Plan::MakeKernelCall make_call = [&](const codegen::Group& group) { return codegen::make_aten_call(group, graph); };
  std::vector<std::shared_ptr<const codegen::CpuKernel>> kernels;
  size_t next = 0;
  if (request.replay == Replay::Kernels) {
    kernels = kernels_of(schedule);
    if (request.check) verify(*graph, schedule, kernels, *request.check);
    make_call = [&](const codegen::Group& group) { return codegen::make_kernel_call(group, kernels[next++]); };
  }
  variant.publish(std::make_unique<const codegen::Plan>(graph, schedule, make_call));
  if (!schedule.groups.empty()) stats_recorder().add_fused_graph();
}

// A missing compiler fails every graph in the same words: the first time is worth a warning.
bool is_said_first(const std::string& text) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return said->size() < 100 && said->insert(text).second;
}

void try_to_make_plan(const FuseRequest& request) {
  const auto variant = request.variant.lock();
  if (!variant) return;
  try {
    make_plan(*variant, request);
  } catch (const Cancelled&) {
  } catch (const WrongPlan& error) {
    stats_recorder().add_refused_graph();
    HC_LOG(CompiledAutograd, Error, "graph {} stays with ATen, please report it: {}", variant->shared_graph()->id, error.what());
  } catch (const std::exception& error) {
    stats_recorder().add_compiler_failure();
    const uint32_t id = variant->shared_graph()->id;
    if (is_said_first(error.what())) {
      HC_LOG(CompiledAutograd, Warning, "graph {} stays with ATen: {}", id, error.what());
    } else {
      HC_LOG(CompiledAutograd, Info, "graph {} stays with ATen: {}", id, error.what());
    }
  }
}

class Worker {
 public:
  void add(FuseRequest job) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
  }

  // At exit: the kernel that is being compiled is finished, the rest is dropped. LLVM must not be in use when its globals go.
  void stop() {
    process_ends = true;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      jobs_.clear();
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void work() {
    // Training goes first; a thread's own niceness is Linux' reading of PRIO_PROCESS.
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      const FuseRequest job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      try_to_make_plan(job);
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<FuseRequest> jobs_;
  std::thread thread_;
  bool busy_ = false, stopping_ = false;
};

// After a fork the child has no thread and locks in any state: it begins with a worker of its own.
Worker& worker() {
  static std::mutex mutex;
  static Worker* current = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != getpid()) {
    owner = getpid();
    current = new Worker;
    static const int registered = std::atexit([] { worker().stop(); });
    static_cast<void>(registered);
  }
  return *current;
}

}  // namespace

void fuse(FuseRequest request, bool in_background) {
  if (in_background) {
    worker().add(std::move(request));
  } else {
    try_to_make_plan(request);
  }
}

void wait_for_fusion() { worker().wait(); }

}  // namespace hindcast::engine
