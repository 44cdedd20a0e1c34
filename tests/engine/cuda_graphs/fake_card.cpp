#include "tests/engine/cuda_graphs/fake_card.h"

#include "codegen/cuda/logged_launches.h"
#include "codegen/cuda/machine.h"
#include "tests/cuda_emulator/machine/machine.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <vector>

namespace hindcast::tests {
namespace {

namespace backend = codegen::cuda;

std::atomic<uint64_t> moved = 0;
std::string why_no_recordings;
std::atomic<int64_t> launches_until_failure = 0;
std::atomic<bool> captures_fail = false, program_records = false, moves_fail = false;

const backend::Machine& emulator() { return cuda::emulator_machine(); }

/// A launch with memory of its own.
struct KeptLaunch {
  explicit KeptLaunch(const backend::Launch& given)
      : launch(given),
        argument(static_cast<const char*>(given.argument), static_cast<const char*>(given.argument) + given.argument_bytes),
        memory(given.memory.begin(), given.memory.end()) {}
  void run() {
    launch.argument = argument.data();
    launch.memory = memory;
    emulator().launch(launch);
  }
  void note(std::vector<const void*>& reads, std::vector<const void*>& writes) const {
    reads.clear();
    writes.clear();
    for (const backend::Memory& one : memory) (one.has_values ? reads : writes).push_back(one.begin);
  }

  backend::Launch launch;
  std::vector<char> argument;
  std::vector<backend::Memory> memory;
};

class FakeRecording final : public codegen::Recording {
 public:
  FakeRecording(at::Device device, c10::function_ref<void()> give) {
    struct Now {
      explicit Now(FakeRecording* recording) { current() = recording; }
      ~Now() { current() = nullptr; }
    } const now(this);
    graph_ = std::make_unique<FakeGraph>(device, [&] {
      give();
      if (captures_fail) FakeGraph::refuse("a test wants it");
    });
  }

  static FakeRecording*& current() {
    thread_local FakeRecording* recording = nullptr;
    return recording;
  }
  void add(const backend::Launch& launch) {
    if (launches_until_failure > 0 && --launches_until_failure == 0) FakeGraph::refuse("a test wants it");
    KeptLaunch& kept = launches_.emplace_back(launch);
    launches_logged_.add(launch, &kept);
    FakeGraph::Work work{.what = "a kernel", .run = [&kept] { kept.run(); }};
    kept.note(work.reads, work.writes);
    work_of_.push_back(FakeGraph::captured_now()->works().size());
    FakeGraph::captured_now()->add(std::move(work));
  }

  void launch() override { graph_->launch(); }
  size_t bytes() const override { return graph_->bytes(); }
  bool move(c10::ArrayRef<codegen::MovedMemory> now) override {
    if (moves_fail) throw std::runtime_error("the driver wants no update");
    return launches_logged_.move(now, [&](const backend::LoggedLaunches::One& one) {
      auto& kept = *static_cast<KeptLaunch*>(one.node);
      const auto* const words = reinterpret_cast<const char*>(one.argument.data());
      kept.argument.assign(words, words + one.argument.size() * sizeof(uint64_t));
      for (backend::Memory& memory : kept.memory) {
        for (const codegen::MovedMemory& each : now) {
          const auto* const from = static_cast<const char*>(each.from);
          const auto* const begin = static_cast<const char*>(memory.begin);
          if (begin < from || begin >= from + each.bytes) continue;
          memory.begin = static_cast<const char*>(each.to) + (begin - from);
          break;
        }
      }
      note_again(kept);
      ++moved;
    });
  }

  bool replace_sets(c10::function_ref<void()> give) override {
    return launches_logged_.replace_sets(give, [&](const backend::LoggedLaunches::One& one) {
      auto& kept = *static_cast<KeptLaunch*>(one.node);
      std::vector<const void*> before(one.argument.size());
      std::memcpy(before.data(), kept.argument.data(), kept.argument.size());
      const auto* const words = reinterpret_cast<const char*>(one.argument.data());
      kept.argument.assign(words, words + one.argument.size() * sizeof(uint64_t));
      for (backend::Memory& memory : kept.memory) {  // what the emulator lets it access
        const auto word = std::find(before.begin(), before.end(), memory.begin);
        if (word != before.end()) memory.begin = reinterpret_cast<const void*>(one.argument[static_cast<size_t>(word - before.begin())]);
      }
      note_again(kept);
    });
  }

 private:
  void note_again(const KeptLaunch& kept) {
    for (size_t i = 0; i < launches_.size(); ++i) {
      FakeGraph::Work& work = graph_->works()[work_of_[i]];
      if (&launches_[i] == &kept) kept.note(work.reads, work.writes);
    }
  }

  std::deque<KeptLaunch> launches_;
  std::vector<size_t> work_of_;  // by launch
  backend::LoggedLaunches launches_logged_;
  std::unique_ptr<FakeGraph> graph_;
};

class FakeCard final : public backend::Machine {
 public:
  c10::DeviceType device() const override { return at::kPrivateUse1; }
  const backend::Limits& limits() const override { return emulator().limits(); }
  std::string_view identity() const override { return emulator().identity(); }
  std::string compile(std::string_view text) const override { return emulator().compile(text); }
  std::shared_ptr<const backend::Module> load(std::string_view object) const override { return emulator().load(object); }
  void launch(const backend::Launch& launch) const override {
    if (FakeRecording* const recording = FakeRecording::current()) return recording->add(launch);
    KeptLaunch kept(launch);
    std::vector<const void*> reads, writes;
    kept.note(reads, writes);
    run_on_model(launch.device, "a kernel", reads, writes);
    kept.run();
  }
  bool wants_memory() const override { return true; }
  std::string why_not_recorded(c10::Device /*device*/) const override { return why_no_recordings; }
  std::optional<bool> is_captured(c10::Device /*device*/) const override { return program_records || FakeRecording::current() != nullptr; }
  std::unique_ptr<codegen::Recording> record(c10::Device device, c10::function_ref<void()> give) const override {
    return std::make_unique<FakeRecording>(device, give);
  }
};

}  // namespace

void install_fake_card() {
  static const bool is_done = [] {
    install_fake_device();
    backend::install_machine(*new FakeCard);
    return true;
  }();
  (void)is_done;
}

uint64_t moved_launches() { return moved; }

WithoutRecordings::WithoutRecordings(const std::string& why) { why_no_recordings = why; }
WithoutRecordings::~WithoutRecordings() { why_no_recordings.clear(); }

ProgramRecords::ProgramRecords() { program_records = true; }
ProgramRecords::~ProgramRecords() { program_records = false; }

FailingMoves::FailingMoves() { moves_fail = true; }
FailingMoves::~FailingMoves() { moves_fail = false; }

void fail_captured_launch(int64_t n) { launches_until_failure = n; }

FailingCaptures::FailingCaptures() { captures_fail = true; }
FailingCaptures::~FailingCaptures() { captures_fail = false; }

}  // namespace hindcast::tests
