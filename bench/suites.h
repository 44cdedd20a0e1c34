#pragma once

#include "bench/settings.h"

namespace hindcast::bench {

class Pristine;

// One function per suite; it registers its rows. The head of a suite's file says what it claims.
void register_chains(const Settings& settings);
void register_models(const Settings& settings);
void register_leaves(const Settings& settings);
void register_memory_chain(const Settings& settings);
void register_aot(const Settings& settings);
void register_layouts(const Settings& settings);
void register_step(const Settings& settings);
void register_seeds(const Settings& settings);
void register_patterns(const Settings& settings);
void register_collect(const Settings& settings);
void register_hook_cost(const Settings& settings);
void register_first(const Settings& settings);
void register_guard_off(const Settings& settings, Pristine& pristine);
void register_leak(const Settings& settings);
void register_changing(const Settings& settings);
void register_idle(const Settings& settings);
void register_soak(const Settings& settings);

}  // namespace hindcast::bench
