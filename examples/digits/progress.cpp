#include "examples/digits/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace digits {
namespace {

using std::chrono::steady_clock;

constexpr int kBarWidth = 24;
constexpr auto kBetweenDrawings = std::chrono::milliseconds(50);

bool can_redraw() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

}  // namespace

Progress::Progress(std::string model, std::int64_t epochs, std::int64_t steps_per_epoch)
    : model_(std::move(model)), epochs_(epochs), steps_per_epoch_(steps_per_epoch), terminal_(can_redraw()) {}

Progress::~Progress() {
  // Also if a step threw: the message must not follow the bar on its line.
  if (line_open_) std::fputs("\n", stderr);
}

void Progress::step_done(double loss) {
  ++steps_;
  if (!terminal_ || steady_clock::now() - drawn_ < kBetweenDrawings) return;
  draw_bar(loss);
}

void Progress::epoch_done(double mean_loss, double accuracy) {
  accuracy_ = accuracy;
  if (terminal_) {
    draw_bar(mean_loss);
  } else {
    fmt::print(stderr, "{:<12} epoch {:>2}/{}  loss {:.4f}  held-out accuracy {:.1f}%\n", model_, steps_ / steps_per_epoch_, epochs_,
               mean_loss, 100 * accuracy);
  }
}

void Progress::draw_bar(double loss) {
  const std::int64_t all = epochs_ * steps_per_epoch_;
  const auto filled = static_cast<int>(kBarWidth * steps_ / all);
  const std::int64_t epoch = (steps_ + steps_per_epoch_ - 1) / steps_per_epoch_;
  fmt::print(stderr, "\r{:<12} [{:#<{}}{:.<{}}] epoch {:>2}/{}  loss {:.4f}  held-out {:.1f}%\x1b[K", model_, "", filled, "",
             kBarWidth - filled, epoch, epochs_, loss, 100 * accuracy_);
  std::fflush(stderr);
  line_open_ = true;
  drawn_ = steady_clock::now();
}

}  // namespace digits
