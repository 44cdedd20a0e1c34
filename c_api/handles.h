#pragma once
// Objects that callers refer to by number. Numbers are never reused, so a destroyed handle is detected.

#include "base/fork.h"
#include "c_api/boundary.h"

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace hindcast::c_api {

/// The next number of the process, for handles of all kinds.
uint64_t next_handle();

template <class Object>
class Handles {
 public:
  /// `what`: a noun for errors.
  explicit Handles(const char* what) : what_(what) {}

  uint64_t add(std::shared_ptr<Object> object) {
    const uint64_t handle = next_handle();
    const std::lock_guard lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  /// The object; it stays alive while the caller holds it, even if the handle is destroyed. Throws std::invalid_argument if unknown.
  std::shared_ptr<Object> at(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    require(found != objects_.end(), unknown(handle));
    return found->second;
  }
  /// The same, and removes the handle. The object is destroyed with the result, outside the lock, since that may run the caller's code.
  std::shared_ptr<Object> take(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    require(found != objects_.end(), unknown(handle));
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  std::string unknown(uint64_t handle) const {
    return std::to_string(handle) + " is no " + what_ + ": it was destroyed, or never made, or is the handle of something else";
  }

  const char* const what_;
  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};
  std::unordered_map<uint64_t, std::shared_ptr<Object>> objects_;
};

}  // namespace hindcast::c_api
