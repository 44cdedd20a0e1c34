#include "tests/support/fake_graph.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "tests/support/fake_device.h"

namespace hindcast::tests {

namespace {

constexpr int kStreamOfCaptures = 31;

thread_local FakeGraph* captured = nullptr;

std::mutex errors_mutex;
std::vector<std::string> errors;
void complain(std::string error) {
  const std::lock_guard lock(errors_mutex);
  errors.push_back(std::move(error));
}

c10::Stream stream_of(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

/// Everything allocated while one graph was captured.
struct FakeGraph::Pool {
  explicit Pool(const c10::Stream& home) : block{.home = home, .size = 0, .written = {home.hash(), 0, "its graph"}} {}
  ~Pool() {
    const std::lock_guard lock(all_mutex());
    for (const auto& [begin, size] : sizes) {
      std::free(begin);
      all().erase(static_cast<const char*>(begin));
    }
  }

  struct Span {
    const char* end;
    Pool* pool;
  };
  static std::map<const char*, Span>& all() {
    static auto* all = new std::map<const char*, Span>;
    return *all;
  }
  static std::mutex& all_mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
  }

  void* take(size_t bytes) {
    const size_t size = (bytes + 64) / 64 * 64;
    auto& free_ones = free[size];
    if (!free_ones.empty()) {
      void* const begin = free_ones.back();
      free_ones.pop_back();
      return begin;
    }
    void* const begin = std::aligned_alloc(64, size);
    sizes[begin] = size;
    bytes_held += size;
    const std::lock_guard lock(all_mutex());
    all()[static_cast<const char*>(begin)] = {static_cast<const char*>(begin) + size, this};
    return begin;
  }

  StreamModel::Block block;
  std::map<void*, size_t> sizes;
  std::map<size_t, std::vector<void*>> free;  // by size
  size_t bytes_held = 0, in_use = 0;
};

namespace {

struct PoolMemory {
  std::shared_ptr<FakeGraph::Pool> pool;
  void* begin;
};

void give_back_to_pool(void* context) {
  const std::unique_ptr<PoolMemory> memory(static_cast<PoolMemory*>(context));
  memory->pool->free[memory->pool->sizes.at(memory->begin)].push_back(memory->begin);
  --memory->pool->in_use;
}

}  // namespace

FakeGraph::FakeGraph(at::Device device, c10::function_ref<void()> give)
    : device_(device), pool_(std::make_shared<Pool>(stream_of(device))) {
  const c10::StreamGuard guard(stream(kStreamOfCaptures, device.index()));
  struct Now {
    explicit Now(FakeGraph* graph) { captured = graph; }
    ~Now() { captured = nullptr; }
  } const now(this);
  give();
}

FakeGraph::~FakeGraph() {
  if (pool_->in_use != 0) complain(std::to_string(pool_->in_use) + " tensors have memory of a graph that is gone");
}

size_t FakeGraph::bytes() const { return pool_->bytes_held; }

FakeGraph* FakeGraph::captured_now() { return captured; }

void FakeGraph::refuse(const std::string& what) {
  throw std::runtime_error("CUDA error: operation not permitted when stream is capturing: " + what);
}

c10::DataPtr FakeGraph::allocate(size_t bytes) {
  void* const begin = pool_->take(bytes);
  ++pool_->in_use;
  return {begin, new PoolMemory{pool_, begin}, &give_back_to_pool, device_};
}

StreamModel::Block* FakeGraph::block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &give_back_to_pool ? &static_cast<PoolMemory*>(data.get_context())->pool->block : nullptr;
}

void FakeGraph::launch() const {
  for (const Work& work : works_) {
    bool is_live = true;
    for (const auto* addresses : {&work.reads, &work.writes}) {
      for (const void* address : *addresses) {
        if (block_at(address) != nullptr) continue;
        complain(work.what + " of a graph touches memory that is nobody's");
        is_live = false;
      }
    }
    if (!is_live) continue;
    run_on_model(device_, work.what + " of a graph", work.reads, work.writes);
    work.run();
  }
}

std::vector<std::string> take_graph_errors() {
  const std::lock_guard lock(errors_mutex);
  return std::exchange(errors, {});
}

StreamModel::Block* block_at(const void* address) {
  {
    const std::lock_guard lock(FakeGraph::Pool::all_mutex());
    const auto& all = FakeGraph::Pool::all();
    const auto behind = all.upper_bound(static_cast<const char*>(address));
    if (behind != all.begin() && std::prev(behind)->second.end > address) return &std::prev(behind)->second.pool->block;
  }
  return block_of_fake_memory(address);
}

void run_on_model(at::Device device, const std::string& what, const std::vector<const void*>& reads,
                  const std::vector<const void*>& writes) {
  const auto blocks = [](const std::vector<const void*>& addresses) {
    std::vector<StreamModel::Block*> blocks;
    for (const void* address : addresses) {
      if (StreamModel::Block* const block = block_at(address)) blocks.push_back(block);
    }
    return blocks;
  };
  StreamModel::of_process().run(stream_of(device), what, blocks(reads), blocks(writes));
}

}  // namespace hindcast::tests
