#pragma once
// Chooses the memory layout of convolutions that is faster on this machine.

#include "engine/aot/program_pair.h"

#include <memory>

namespace hindcast::engine {

class Specialisation;

/// If channels-last convolutions take less time, including all copies, replaces `pair` by programs that use them. Measures some runs of
/// each convolution: in the background, unless AotOptions::async is off.
void choose_layout(const std::shared_ptr<Specialisation>& of, const std::shared_ptr<const ProgramPair>& pair, const AotOptions& options);

}  // namespace hindcast::engine
