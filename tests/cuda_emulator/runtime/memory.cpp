#include "tests/cuda_emulator/runtime/memory.h"

namespace hindcast::tests::cuda {

Memory& Memory::global() {
  static Memory memory;
  return memory;
}

void Memory::add(const void* begin, uint64_t bytes, std::string name, bool written) {
  if (bytes == 0) return;
  const uint64_t address = reinterpret_cast<uint64_t>(begin);
  regions_.insert_or_assign(address, Region{address, address + bytes, std::move(name), Shadow(address, bytes, written)});
  recent_ = {};
}

void Memory::remove(const void* begin) {
  regions_.erase(reinterpret_cast<uint64_t>(begin));
  recent_ = {};
}

void Memory::set_written(const void* begin) {
  const auto found = regions_.find(reinterpret_cast<uint64_t>(begin));
  if (found != regions_.end()) found->second.shadow.set_written(true);
}

Region* Memory::find(uint64_t address) {
  for (Region* region : recent_) {
    if (region != nullptr && address >= region->begin && address < region->end) return region;
  }
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  Region& region = (--after)->second;
  if (address >= region.end) return nullptr;
  oldest_ = (oldest_ + 1) % recent_.size();
  return recent_[oldest_] = &region;
}

std::string Memory::near(uint64_t address) const {
  auto after = regions_.upper_bound(address);
  std::string text = "expected an address of global or shared memory";
  if (after != regions_.end()) {
    text += "; " + std::to_string(after->second.begin - address) + " bytes before '" + after->second.name + "'";
  }
  if (after != regions_.begin()) {
    const Region& before = (--after)->second;
    text += "; " + std::to_string(address - before.end) + " bytes behind the end of '" + before.name + "', which has " +
            std::to_string(before.end - before.begin);
  }
  return text;
}

}  // namespace hindcast::tests::cuda
