#include "base/thread_end.h"

namespace hindcast::base {
namespace {

thread_local bool has_ended = false;

struct AtEnd {
  ~AtEnd() { has_ended = true; }
};

}  // namespace

bool thread_has_ended() {
  static thread_local AtEnd at_end;  // made by the thread's first call
  return has_ended;
}

}  // namespace hindcast::base
