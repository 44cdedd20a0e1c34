#pragma once

#include <sys/types.h>

namespace hindcast::bench {

/// The workloads that the guard_off suite measures.
enum class PristineWork { Chain, Mlp };

struct PristineBlock {
  PristineWork work;
  int threads;
  int backwards;
};

/// Median microseconds of a block of stock backwards in THIS process.
double run_stock_block(const PristineBlock& block);

/// A second process in which hindcast was never enabled, and never will be.
/// Within one process the state "before the first enable()" cannot be restored, so it could not be interleaved with "after". The copy is
/// forked before anything else runs and waits on a pipe; each request makes it run one block, while this process sleeps.
class Pristine {
 public:
  Pristine();  // throws std::system_error if the system refuses a process
  ~Pristine();
  Pristine(const Pristine&) = delete;
  Pristine& operator=(const Pristine&) = delete;

  double run(const PristineBlock& block);

 private:
  pid_t process_ = -1;
  int requests_ = -1;
  int answers_ = -1;
};

}  // namespace hindcast::bench
