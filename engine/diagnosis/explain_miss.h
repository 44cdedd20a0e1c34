#pragma once

#include "cache/miss.h"
#include "capture/backward/collected.h"

#include <c10/util/FunctionRef.h>

#include <vector>

namespace hindcast::engine {

/// Names what differs between the row of facts of an earlier capture and that of this call. `origins`: where the facts of `now` came
/// from; `becomes_symbol`: by place in them. Never empty: two rows that are equal differ in the relations between their sizes.
std::vector<cache::Miss> explain_miss(const capture::Collected& collected, const std::vector<capture::FactOrigin>& origins,
                                      const capture::Facts& before, const capture::Facts& now,
                                      c10::function_ref<bool(size_t place)> becomes_symbol);

}  // namespace hindcast::engine
