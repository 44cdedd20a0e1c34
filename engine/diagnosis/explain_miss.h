#pragma once

#include "cache/miss.h"
#include "capture/backward/collected.h"

#include <c10/util/FunctionRef.h>

#include <vector>

namespace hindcast::engine {

/// Describes how this call's facts differ from those of an earlier capture. `origins`: where the facts of `now` came from;
/// `becomes_symbol`: whether the fact at an index becomes a symbol. Never empty: if two rows are equal, the difference is in the relations
/// between their sizes.
std::vector<cache::Miss> explain_miss(const capture::Collected& collected, const std::vector<capture::FactOrigin>& origins,
                                      const capture::Facts& before, const capture::Facts& now,
                                      c10::function_ref<bool(size_t place)> becomes_symbol);

}  // namespace hindcast::engine
