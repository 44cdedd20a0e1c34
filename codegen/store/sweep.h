#pragma once
// Keeps a folder of kernels below a size.

#include <cstdint>

namespace hindcast::codegen::store {

/// Deletes the store's files that were not used for longest until the others hold at most `max_size` bytes, and temporary
/// files that nobody has written to for an hour. Other files are neither counted nor touched. Returns how many went.
uint64_t sweep_folder(int folder, uint64_t max_size, uint64_t max_files);

inline constexpr const char* kKernelFilePrefix = "hindcast-";
inline constexpr const char* kKernelFileSuffix = ".kernel";
inline constexpr const char* kTemporaryFilePrefix = ".hindcast-";

}  // namespace hindcast::codegen::store
