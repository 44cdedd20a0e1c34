#pragma once
// A run's texts, held against what is known of them.

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

/// Of a folder that has a folder for each suite, with the suite's texts (tests/support/kept_texts.h). Other files are not read.
Texts texts_in(const std::string& folder);

struct Check {
  size_t known = 0;           // in the table or by an earlier run: not compiled
  size_t compiled_again = 0;  // of those in the table, to see whether it is true
  size_t compiled = 0;        // of those that were not known
  size_t left_out = 0;
  std::vector<std::string> problems;  // rows that are wrong, kernels that lack registers
};

inline constexpr size_t kMoreOfUnknown = 8;

struct CheckOptions {
  /// Of the texts in the table this part is compiled again. Of those that are not known, kMoreOfUnknown times as many are compiled.
  Part part;
  /// Each text for each architecture, instead of for one.
  bool all_architectures = false;
  AllowedSpills allowed_spills = {};
};

/// Adds what is compiled to `earlier`. Throws NVRTC's words where a text does not compile.
Check check_texts(const codegen::cuda::Nvrtc& nvrtc, const Texts& texts, const Table& table, KnownUses& earlier,
                  const CheckOptions& options);

}  // namespace hindcast::tests
