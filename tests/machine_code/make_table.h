#pragma once

#include "codegen/cuda/nvrtc.h"
#include "tests/machine_code/check_texts.h"
#include "tests/machine_code/known_uses.h"
#include "tests/machine_code/table.h"

#include <cstddef>
#include <functional>

namespace hindcast::tests {

/// The table of exactly these texts. Those that are not in `known` are compiled on all cores and added to it; `compiled` is called now and
/// then with the progress. Throws NVRTC's message if a text does not compile.
Table make_table(const codegen::cuda::Nvrtc& nvrtc, const Texts& texts, KnownUses& known,
                 const std::function<void(size_t count, size_t of)>& compiled);

}  // namespace hindcast::tests
