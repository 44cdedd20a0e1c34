#pragma once
// Makes a failing program small.

#include <functional>

#include "tests/whole/fuzz/program.h"

namespace hindcast::tests::fuzz {

using Fails = std::function<bool(const Program&)>;

/// The smallest program that could be reached from `program`, one simplification after the other, while `fails` stays true. `fails` is
/// called at most `attempts` times.
Program shrink(Program program, const Fails& fails, int attempts = 600);

}  // namespace hindcast::tests::fuzz
