#pragma once
// Compares a run's texts with what is known about them.

#include "codegen/cuda/nvrtc.h"
#include "tests/machine_code/known_uses.h"
#include "tests/machine_code/spills.h"
#include "tests/machine_code/table.h"
#include "tests/support/part.h"

#include <map>
#include <string>
#include <vector>

namespace hindcast::tests {

/// By label; each text once, under the first of its labels.
using Texts = std::map<std::string, std::string>;

/// Reads a folder with a folder per suite, which has the suite's texts (tests/support/kept_texts.h). Ignores other files.
Texts texts_in(const std::string& folder);

struct Check {
  size_t known = 0;           // in the table or by an earlier run: not compiled
  size_t compiled_again = 0;  // texts of the table, to verify it
  size_t compiled = 0;        // unknown texts
  size_t left_out = 0;
  std::vector<std::string> problems;  // rows that are wrong, kernels that lack registers
};

inline constexpr size_t kMoreOfUnknown = 8;

struct CheckOptions {
  /// This part of the texts in the table is recompiled. Of unknown texts, kMoreOfUnknown times as many are compiled.
  Part part;
  /// Each text for each architecture, instead of for one.
  bool all_architectures = false;
  AllowedSpills allowed_spills = {};
};

/// Adds the compiled texts to `earlier`. Throws NVRTC's message if a text does not compile.
Check check_texts(const codegen::cuda::Nvrtc& nvrtc, const Texts& texts, const Table& table, KnownUses& earlier,
                  const CheckOptions& options);

}  // namespace hindcast::tests
