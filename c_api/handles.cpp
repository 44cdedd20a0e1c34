#include "c_api/handles.h"

#include <atomic>

namespace hindcast::c_api {

uint64_t next_handle() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace hindcast::c_api
