#include "engine/call/root_gradients.h"

#include "hooks/add_gradients.h"

#include <algorithm>
#include <utility>

namespace hindcast::engine {

capture::Resume start_of(const capture::BackwardCall& call, const capture::Collected& collected) {
  capture::Resume start;
  for (size_t i = 0; i < collected.roots.size(); ++i) {
    const auto& root = collected.roots[i];
    if (root.call == capture::kNoCall) continue;
    const uint32_t input = collected.calls[root.call].first_input + root.input_nr;
    const auto waiting =
        std::find_if(start.buffers.begin(), start.buffers.end(), [&](const auto& buffer) { return buffer.first == input; });
    if (waiting == start.buffers.end()) {
      start.buffers.emplace_back(input, call.root_gradients[i]);
    } else {  // the same root twice: the stock engine sums the gradients before any node runs
      waiting->second = hooks::add_gradients(std::move(waiting->second), call.root_gradients[i]);
    }
  }
  return start;
}

}  // namespace hindcast::engine
