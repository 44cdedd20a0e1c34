#pragma once

#include "base/log.h"

#include <memory>
#include <string>
#include <string_view>

namespace hindcast::tests {

/// Routes the log channels to a string while it lives, then restores them.
///
///     LogCapture logs("recompiles,+cache");
///     loss.backward();
///     EXPECT_EQ(logs.count("Cache miss due to"), 1);
///
/// `spec` is like HINDCAST_LOGS; "" leaves warnings and errors.
class LogCapture {
 public:
  explicit LogCapture(std::string_view spec = "+all");
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  /// All lines so far, from every thread.
  std::string text() const;
  /// How many lines contain `part`.
  size_t count(std::string_view part) const;
  void clear();

 private:
  struct Lines;
  std::shared_ptr<Lines> lines_;  // shared with the output, which another thread may still write to at the end
  base::LogThresholds former_thresholds_;
  base::LogOutput former_output_;
};

}  // namespace hindcast::tests
