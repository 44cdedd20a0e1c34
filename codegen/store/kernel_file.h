#pragma once
// One file of the store, as bytes: a header, then the object.
//
//   magic, format, key, size of the object, XXH3-128 of all that and of the object
//
// Numbers are as this machine writes them: its object code is for no other. The checksum is for accidents (a crash, a bad
// disk, a file cut short); against people, the store looks at who owns and who may write the file.

#include "codegen/store/kernel_key.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hindcast::codegen::store {

/// No kernel comes near it; a larger file is not read at all.
inline constexpr size_t kMaxObjectSize = size_t{64} << 20;

inline constexpr size_t kKernelFileHeaderSize = 56;

std::string make_kernel_file_header(const KernelKey& key, std::string_view object);

/// Strips the header off `file`. Nothing if it is not exactly what make_kernel_file_header() and an object under `key` are.
std::optional<std::string> object_in(std::string file, const KernelKey& key);

}  // namespace hindcast::codegen::store
