#pragma once

#include <string>

namespace torch::jit {
struct Module;
}

namespace hindcast::engine {

/// Why the module's forward must run eagerly, as a sentence: its code has effects that a program would not repeat, or returns objects.
/// Empty if it need not.
std::string why_eager(const torch::jit::Module& module);

}  // namespace hindcast::engine
