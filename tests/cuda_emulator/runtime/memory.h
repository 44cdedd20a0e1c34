#pragma once
// The global memory that kernels may access: a table of regions.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_emulator/runtime/shadow.h"

namespace hindcast::tests::cuda {

struct Region {
  uint64_t begin = 0, end = 0;
  std::string name;
  Shadow shadow;
};

class Memory {
 public:
  /// All memory of the process that kernels may access.
  static Memory& global();

  /// `written`: the host wrote it, so kernels may read it.
  void add(const void* begin, uint64_t bytes, std::string name, bool written);
  void remove(const void* begin);
  void set_written(const void* begin);

  /// The region that holds the address, or null.
  Region* find(uint64_t address);
  /// A description of an address that no region holds.
  std::string near(uint64_t address) const;

 private:
  std::map<uint64_t, Region> regions_;  // by begin
  std::array<Region*, 4> recent_ = {};  // the last ones found
  size_t oldest_ = 0;
};

/// Global memory of its own, with unowned space on both sides.
template <class T>
class DeviceArray {
 public:
  /// Nothing is written yet.
  explicit DeviceArray(size_t count, std::string name = "array") : DeviceArray(count, std::move(name), false) {}
  explicit DeviceArray(const std::vector<T>& values, std::string name = "array") : DeviceArray(values.size(), std::move(name), true) {
    for (size_t i = 0; i < values.size(); ++i) data()[i] = values[i];
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { Memory::global().remove(data()); }

  T* data() { return reinterpret_cast<T*>(bytes_.data() + start_); }
  size_t size() const { return count_; }
  std::vector<T> values() { return {data(), data() + count_}; }

 private:
  DeviceArray(size_t count, std::string name, bool written) : count_(count), bytes_(count * sizeof(T) + 3 * kAlignment) {
    start_ = kAlignment + (kAlignment - reinterpret_cast<uintptr_t>(bytes_.data()) % kAlignment) % kAlignment;
    Memory::global().add(data(), count * sizeof(T), std::move(name), written);
  }

  static constexpr size_t kAlignment = 256;
  size_t count_;
  std::vector<char> bytes_;
  size_t start_ = 0;
};

}  // namespace hindcast::tests::cuda
