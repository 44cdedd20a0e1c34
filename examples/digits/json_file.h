#pragma once

#include <filesystem>
#include <vector>

#include "examples/digits/options.h"
#include "examples/digits/train.h"

namespace digits {

/// Throws std::runtime_error now if results cannot be written there later, after minutes of training.
void require_writable(const std::filesystem::path& path);

/// Writes {"models": [{name, accuracy, max_grad_diff, graphs, hits, misses, stock_us, hindcast_us, ...}], ...}.
void write_json(const std::filesystem::path& path, const Options& options, const std::vector<Outcome>& outcomes);

}  // namespace digits
