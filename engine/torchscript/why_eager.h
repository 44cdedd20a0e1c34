#pragma once

#include <string>

namespace torch::jit {
struct Module;
}

namespace hindcast::engine {

/// Why calls of the module's forward cannot run as programs, as a sentence: its code has effects that a program would not repeat, or results
/// that are objects. Empty: they can.
std::string why_eager(const torch::jit::Module& module);

}  // namespace hindcast::engine
