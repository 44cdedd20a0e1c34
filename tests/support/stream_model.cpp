#include "tests/support/stream_model.h"

#include <algorithm>
#include <utility>

namespace hindcast::tests {
namespace {

void take_later(StreamModel::Clock& clock, const StreamModel::Clock& other) {
  for (const auto& [stream, work] : other) clock[stream] = std::max(clock[stream], work);
}

std::string name_of(uint64_t hash) { return "stream " + std::to_string(hash & 0xffff) + " of device " + std::to_string(hash >> 48 & 0xff); }

}  // namespace

StreamModel& StreamModel::of_process() {
  static auto* model = new StreamModel;  // device threads and tensors may outlive main()
  return *model;
}

int64_t StreamModel::step(uint64_t stream) {
  Clock& known = known_[stream];
  take_later(known, done_);
  return ++known[stream];
}

bool StreamModel::is_before(const Work& work, uint64_t stream) {
  return work.stream == stream || known_[stream][work.stream] >= work.number || done_[work.stream] >= work.number;
}

void StreamModel::complain(const std::string& what, uint64_t on, const std::string& kind, const Work& other) {
  unordered_.push_back(what + " on " + name_of(on) + " " + kind + " " + other.what + " on " + name_of(other.stream));
}

StreamModel::Block* StreamModel::allocate(const c10::Stream& on, int64_t size) {
  const std::lock_guard lock(mutex_);
  return new Block{.home = on, .size = size, .written = {on.hash(), step(on.hash()), "its allocation"}};
}

void StreamModel::free(Block* block) {
  const std::lock_guard lock(mutex_);
  const uint64_t home = block->home.hash();
  const auto look_at = [&](const Work& work) {
    if (!block->recorded.contains(work.stream) && !is_before(work, home)) complain("free of memory", home, "does not wait for", work);
  };
  look_at(block->written);
  for (const auto& [stream, work] : block->read) look_at(work);
  delete block;
}

void StreamModel::record_stream(Block& block, const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  block.recorded.insert(stream.hash());
}

void StreamModel::run(const c10::Stream& on, const std::string& what, const std::vector<Block*>& reads, const std::vector<Block*>& writes) {
  const std::lock_guard lock(mutex_);
  const uint64_t stream = on.hash();
  const Work now{stream, step(stream), what};
  for (Block* block : reads) {
    if (!is_before(block->written, stream)) complain(what, stream, "reads what is written by", block->written);
    block->read[stream] = now;
  }
  for (Block* block : writes) {
    if (!is_before(block->written, stream)) complain(what, stream, "writes what is written by", block->written);
    for (const auto& [reader, work] : block->read) {
      if (!is_before(work, stream)) complain(what, stream, "writes what is read by", work);
    }
    block->written = now;
    block->read.clear();
  }
}

std::shared_ptr<const StreamModel::Clock> StreamModel::record_event(const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  step(stream.hash());
  return std::make_shared<const Clock>(known_[stream.hash()]);
}

void StreamModel::wait(const c10::Stream& stream, const Clock& event) {
  const std::lock_guard lock(mutex_);
  take_later(known_[stream.hash()], event);
}

void StreamModel::order(const c10::Stream& earlier, const c10::Stream& later) { wait(later, *record_event(earlier)); }

void StreamModel::synchronize(const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  take_later(done_, known_[stream.hash()]);
}

void StreamModel::synchronize_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [stream, known] : known_) take_later(done_, known);
}

std::vector<std::string> StreamModel::take_unordered() {
  const std::lock_guard lock(mutex_);
  return std::exchange(unordered_, {});
}

}  // namespace hindcast::tests
