#include "codegen/store/kernel_file.h"

#include <array>
#include <cstring>
#include <type_traits>

namespace hindcast::codegen::store {
namespace {

constexpr std::array<char, 8> kMagic = {'h', 'c', 'k', 'e', 'r', 'n', 'e', 'l'};

struct Header {
  std::array<char, 8> magic = kMagic;
  uint64_t format = kStoreFormat;
  KernelKey key;
  uint64_t object_size = 0;
  KernelKey checksum;
};
static_assert(sizeof(Header) == kKernelFileHeaderSize && std::has_unique_object_representations_v<Header>);

/// The checksum of the header, with its checksum field zero, and the object.
KernelKey checksum_of(Header header, std::string_view object) {
  header.checksum = {};
  return key_of({{reinterpret_cast<const char*>(&header), sizeof(header)}, object});
}

}  // namespace

std::string make_kernel_file_header(const KernelKey& key, std::string_view object) {
  Header header;
  header.key = key;
  header.object_size = object.size();
  header.checksum = checksum_of(header, object);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header));
}

std::optional<std::string> object_in(std::string file, const KernelKey& key) {
  Header header;
  if (file.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.magic != kMagic || header.format != kStoreFormat || header.key != key) return std::nullopt;
  // Compared with the actual size, so that a corrupt size is never used in arithmetic or allocated.
  if (header.object_size != file.size() - sizeof(header)) return std::nullopt;
  if (header.checksum != checksum_of(header, std::string_view(file).substr(sizeof(header)))) return std::nullopt;
  file.erase(0, sizeof(header));
  return file;
}

}  // namespace hindcast::codegen::store
