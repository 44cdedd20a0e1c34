#pragma once
// The format of a file of the store: a header, then the object.
//
//   magic, format, key, size of the object, XXH3-128 of all that and of the object
//
// Numbers have this machine's byte order, since the object code is only for this machine. The checksum protects against accidents (a crash,
// a bad disk, a truncated file); against attackers, the store checks the file's owner and permissions.

#include "codegen/store/kernel_key.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hindcast::codegen::store {

/// Bytes. Far larger than any kernel; a larger file is not read at all.
inline constexpr size_t kMaxObjectSize = size_t{64} << 20;

inline constexpr size_t kKernelFileHeaderSize = 56;

std::string make_kernel_file_header(const KernelKey& key, std::string_view object);

/// Strips the header off `file`. nullopt if the file is not exactly a valid header for `key` and its object.
std::optional<std::string> object_in(std::string file, const KernelKey& key);

}  // namespace hindcast::codegen::store
