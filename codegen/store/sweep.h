#pragma once
// Keeps the kernel store below a size limit.

#include <cstdint>

namespace hindcast::codegen::store {

/// Deletes the least recently used files of the store until the rest are at most `max_size` bytes and `max_files` files, and temporary
/// files that have not been written to for an hour. Other files are neither counted nor touched. Returns the number of files deleted.
uint64_t sweep_folder(int folder, uint64_t max_size, uint64_t max_files);

inline constexpr const char* kKernelFilePrefix = "hindcast-";
inline constexpr const char* kKernelFileSuffix = ".kernel";
inline constexpr const char* kTemporaryFilePrefix = ".hindcast-";

}  // namespace hindcast::codegen::store
