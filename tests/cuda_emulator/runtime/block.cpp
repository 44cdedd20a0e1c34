#include "tests/cuda_emulator/runtime/block.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>

namespace hindcast::tests::cuda {
namespace {

Block* running = nullptr;
uint32_t blocks_so_far = 0;  // of all launches

/// Created once: a launch of many blocks would spend its time on mapping stacks.
Fibre* fibre_of(uint32_t thread) {
  static std::vector<std::unique_ptr<Fibre>> fibres;
  while (fibres.size() <= thread) fibres.push_back(std::make_unique<Fibre>());
  return fibres[thread].get();
}

hindcast_emulator::Index index_of(Dim3 place) { return {place.x, place.y, place.z}; }

std::string hexadecimal(uint32_t mask) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[mask >> shift & 15];
  return text;
}

}  // namespace

Block::Block(const Kernel& kernel, const LaunchShape& shape, void** arguments)
    : kernel_(kernel), shape_(shape), arguments_(arguments), binding_(kernel.module->bind()) {
  now_.first_block = blocks_so_far + 1;
  for (auto& [name, span] : binding_.shared_arrays) {
    if (name == "smem") span.end = span.begin + shape.shared_bytes;
    if (span.end > span.begin) shared_.push_back({span.begin, span.end, name, Shadow(span.begin, span.end - span.begin, false)});
  }
  *binding_.variables.block_size = index_of(shape.block);
  *binding_.variables.grid_size = index_of(shape.grid);
  for (uint64_t i = 0; i < shape.block.count(); ++i) indices_.push_back(index_of(shape.block.at(i)));
  running = this;
}

Block& Block::current() { return *running; }

void Block::run(uint64_t number) {
  place_ = shape_.grid.at(number);
  *binding_.variables.block_index = index_of(place_);
  now_.block = ++blocks_so_far;
  now_.barriers = 0;
  const uint64_t count = shape_.block.count();
  threads_.assign(count, {});
  warp_barriers_.assign((count + kWarpSize - 1) / kWarpSize, 0);
  for (uint32_t i = 0; i < count; ++i) {
    threads_[i].fibre = fibre_of(i);
    threads_[i].fibre->start(&run_thread, this);
  }
  while (true) {
    if (run_those_ready()) continue;
    if (std::all_of(threads_.begin(), threads_.end(), [](const Thread& thread) { return thread.state == Thread::State::Done; })) return;
    release_barrier();
  }
}

void Block::run_thread(void* data) {
  auto& block = *static_cast<Block*>(data);
  block.kernel_.call(block.arguments_);
  block.threads_[block.now_.thread].state = Thread::State::Done;
}

void Block::resume(uint32_t thread) {
  now_.thread = thread;
  now_.warp_barriers = warp_barriers_[thread / kWarpSize];
  *binding_.variables.thread_index = indices_[thread];
  threads_[thread].fibre->resume();
  if (finding_) throw KernelError(std::move(*finding_));
}

bool Block::run_those_ready() {
  bool any = false;
  for (uint32_t i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state != Thread::State::Ready) continue;
    any = true;
    resume(i);
    if (threads_[i].state == Thread::State::InWarp) release_warp(i);
  }
  return any;
}

void Block::release_barrier() {
  const int line = threads_.front().line;
  for (const Thread& thread : threads_) {
    if (thread.state != Thread::State::AtBarrier || thread.line != line) report_waiting();
  }
  for (Thread& thread : threads_) thread.state = Thread::State::Ready;
  ++now_.barriers;
}

bool Block::waits_with(uint32_t thread, uint32_t lane) const {
  const Thread& asking = threads_[thread];
  const Thread& other = threads_[thread / kWarpSize * kWarpSize + lane];
  return other.state == Thread::State::InWarp && other.mask == asking.mask && other.call == asking.call;
}

uint32_t Block::missing_lanes(uint32_t thread) const {
  uint32_t missing = 0;
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    if ((threads_[thread].mask >> lane & 1) != 0 && !waits_with(thread, lane)) missing |= 1U << lane;
  }
  return missing;
}

void Block::release_warp(uint32_t thread) {
  const Thread asking = threads_[thread];
  // Starts with the last lane, which arrives last: all but one of the calls end at once.
  for (uint32_t lane = kWarpSize; lane-- > 0;) {
    if ((asking.mask >> lane & 1) != 0 && !waits_with(thread, lane)) return;
  }
  const uint32_t first = thread / kWarpSize * kWarpSize;
  uint64_t votes = 0;
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    if ((asking.mask >> lane & 1) != 0 && threads_[first + lane].given != 0) votes |= uint64_t{1} << lane;
  }
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    if ((asking.mask >> lane & 1) == 0) continue;
    Thread& waiting = threads_[first + lane];
    waiting.received = asking.call == WarpCall::Shuffle ? threads_[first + waiting.source].given : votes;
    waiting.state = Thread::State::Ready;
  }
  if (asking.call == WarpCall::Barrier) ++warp_barriers_[thread / kWarpSize];
}

void Block::report_waiting() {
  for (uint32_t i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state != Thread::State::InWarp) continue;
    now_.thread = i;
    throw KernelError(finding(Wrong::Warp, "line " + std::to_string(threads_[i].line) + " waits for the lanes " +
                                               hexadecimal(threads_[i].mask) + ", of which " + hexadecimal(missing_lanes(i)) +
                                               " do not come"));
  }
  const auto waiting =
      std::find_if(threads_.begin(), threads_.end(), [](const Thread& thread) { return thread.state == Thread::State::AtBarrier; });
  now_.thread = waiting - threads_.begin();
  const auto other = std::find_if(threads_.begin(), threads_.end(), [&](const Thread& thread) {
    return thread.state != Thread::State::AtBarrier || thread.line != waiting->line;
  });
  const std::string where = other->state == Thread::State::Done ? "has ended" : "waits at line " + std::to_string(other->line);
  throw KernelError(finding(Wrong::Barrier, "waits at line " + std::to_string(waiting->line) + ", but thread " +
                                                std::to_string(other - threads_.begin()) + " of the block " + where));
}

void Block::wait_for_block(int line) {
  Thread& thread = threads_[now_.thread];
  thread.state = Thread::State::AtBarrier;
  thread.line = line;
  thread.fibre->pause();
}

uint64_t Block::wait_for_warp(WarpCall call, uint32_t mask, uint64_t given, uint32_t source, int line) {
  Thread& thread = threads_[now_.thread];
  const uint32_t lane = now_.thread % kWarpSize;
  const uint64_t lanes = std::min<uint64_t>(kWarpSize, threads_.size() - (now_.thread - lane));
  // A barrier's mask may name lanes that were never there; a shuffle's must not.
  if (call == WarpCall::Barrier && lanes < kWarpSize) mask &= (1U << lanes) - 1;
  if ((mask >> lane & 1) == 0) fail(Wrong::Warp, 0, -1, "lane " + std::to_string(lane) + " is not in its own mask " + hexadecimal(mask));
  if (static_cast<uint64_t>(std::bit_width(mask)) > lanes) {
    fail(Wrong::Warp, 0, -1,
         "line " + std::to_string(line) + " names the lanes " + hexadecimal(mask) + ", but this warp has " + std::to_string(lanes));
  }
  if (call == WarpCall::Shuffle && (mask >> source & 1) == 0) {
    fail(Wrong::Warp, 0, -1,
         "line " + std::to_string(line) + " reads lane " + std::to_string(source) + ", outside of the mask " + hexadecimal(mask));
  }
  thread.state = Thread::State::InWarp;
  thread.call = call;
  thread.mask = mask;
  thread.given = given;
  thread.source = source;
  thread.line = line;
  thread.fibre->pause();
  return thread.received;
}

Finding Block::finding(Wrong kind, std::string what) const {
  return {.kind = kind, .kernel = kernel_.name, .block = place_, .thread = shape_.block.at(now_.thread), .what = std::move(what)};
}

void Block::fail(Wrong kind, uint64_t address, int64_t element, std::string what, bool between_blocks) {
  finding_ = finding(kind, std::move(what));
  finding_->address = address;
  finding_->element = element;
  finding_->between_blocks = between_blocks;
  threads_[now_.thread].fibre->pause();
  std::abort();
}

}  // namespace hindcast::tests::cuda
