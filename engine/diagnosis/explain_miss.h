#pragma once

#include "cache/miss.h"
#include "capture/backward/collected.h"
#include "engine/dynamic_rule.h"

#include <vector>

namespace hindcast::engine {

/// Names what differs between the row of facts of an earlier capture and that of this call. `origins`: where the facts of `now` came
/// from; `chosen`: those that become symbols. Never empty: two rows that are equal differ in the relations between their sizes.
std::vector<cache::Miss> explain_miss(const capture::Collected& collected, const std::vector<capture::FactOrigin>& origins,
                                      const Facts& before, const Facts& now, const DynamicRow& chosen);

}  // namespace hindcast::engine
