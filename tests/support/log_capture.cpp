#include "tests/support/log_capture.h"

#include "base/fork.h"
#include "engine/diagnosis/log_setup.h"

#include <mutex>
#include <sstream>

namespace hindcast::tests {

struct LogCapture::Lines {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};  // a child logs too, even if another thread of its parent was about to
  std::string text;
};

LogCapture::LogCapture(std::string_view spec) : lines_(std::make_shared<Lines>()) {
  const base::LogThresholds thresholds = engine::parse_log_spec(spec, "LogCapture");
  engine::configure_logs_from_environment();  // now, lest the first enable() in the test undo what is set here
  former_thresholds_ = base::log_thresholds();
  base::set_log_thresholds(thresholds);
  former_output_ = base::exchange_log_output(base::callback_log_output([lines = lines_](std::string_view added) {
    const std::lock_guard lock(lines->mutex);
    lines->text += added;
  }));
}

LogCapture::~LogCapture() {
  base::exchange_log_output(former_output_);
  base::set_log_thresholds(former_thresholds_);
}

std::string LogCapture::text() const {
  const std::lock_guard lock(lines_->mutex);
  return lines_->text;
}

size_t LogCapture::count(std::string_view part) const {
  std::istringstream lines(text());
  size_t found = 0;
  for (std::string line; std::getline(lines, line);) found += line.find(part) != std::string::npos;
  return found;
}

void LogCapture::clear() {
  const std::lock_guard lock(lines_->mutex);
  lines_->text.clear();
}

}  // namespace hindcast::tests
