#include "bench/pristine.h"

#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "bench/harness.h"

namespace hindcast::bench {
namespace {

// The messages are far below PIPE_BUF, so one read or write transfers a whole one.
template <class T>
bool receive(int from, T& message) {
  return ::read(from, &message, sizeof message) == sizeof message;
}
template <class T>
bool send(int to, const T& message) {
  return ::write(to, &message, sizeof message) == sizeof message;
}

[[noreturn]] void serve(int requests, int answers) {
  PristineBlock block{};
  while (receive(requests, block) && send(answers, run_stock_block(block))) {
  }
  ::_exit(0);  // the parent has closed its end
}

}  // namespace

double run_stock_block(const PristineBlock& block) {
  static const Workload chain = mixed_chain(1000);
  static const Workload model = mlp({64, 128, 64}, 32);
  at::set_num_threads(block.threads);
  Lane lane{block.work == PristineWork::Chain ? &chain : &model, std::nullopt};
  run_block(lane, block.backwards);
  return lane.us.back();
}

Pristine::Pristine() {
  int requests[2];
  int answers[2];
  if (::pipe(requests) != 0 || ::pipe(answers) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  process_ = ::fork();
  if (process_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (process_ == 0) {
    ::close(requests[1]);
    ::close(answers[0]);
    serve(requests[0], answers[1]);
  }
  ::close(requests[0]);
  ::close(answers[1]);
  requests_ = requests[1];
  answers_ = answers[0];
}

Pristine::~Pristine() {
  ::close(requests_);
  ::close(answers_);
  ::waitpid(process_, nullptr, 0);
}

double Pristine::run(const PristineBlock& block) {
  double us = 0;
  if (!send(requests_, block) || !receive(answers_, us)) {
    throw std::runtime_error("guard_off: the process without hindcast has ended; was it killed?");
  }
  return us;
}

}  // namespace hindcast::bench
