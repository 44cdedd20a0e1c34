#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace digits {

/// Shows the progress of a training on stderr: a bar on a terminal, a line per epoch elsewhere.
class Progress {
 public:
  Progress(std::string model, std::int64_t epochs, std::int64_t steps_per_epoch);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step_done(double loss);
  void epoch_done(double mean_loss, double accuracy);

 private:
  void draw_bar(double loss);

  std::string model_;
  std::int64_t epochs_;
  std::int64_t steps_per_epoch_;
  std::int64_t steps_ = 0;
  double accuracy_ = 0;
  bool terminal_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace digits
