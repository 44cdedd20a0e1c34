#include "tests/machine_code/text_hash.h"

#include "codegen/store/kernel_key.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace hindcast::tests {
namespace {

using codegen::DeviceHeader;

/// Adds the headers that `text` includes and that are not in `parts` yet.
void add_included(std::string_view text, std::span<const DeviceHeader> headers, std::vector<std::string_view>& parts) {
  constexpr std::string_view kInclude = "#include \"";
  for (size_t at = text.find(kInclude); at != text.npos; at = text.find(kInclude, at)) {
    at += kInclude.size();
    const std::string_view name = text.substr(at, text.find('"', at) - at);
    const auto header = std::find_if(headers.begin(), headers.end(), [&](const DeviceHeader& one) { return one.name == name; });
    if (header == headers.end() || std::find(parts.begin(), parts.end(), name) != parts.end()) continue;
    parts.push_back(header->name);
    parts.push_back(header->text);
    add_included(header->text, headers, parts);
  }
}

}  // namespace

std::string hash_of(const codegen::cuda::Nvrtc& nvrtc, const std::string& text, int architecture, std::span<const DeviceHeader> headers) {
  const std::string identity = codegen::cuda::object_identity(nvrtc, codegen::cuda::kernel_options(architecture));
  std::vector<std::string_view> parts = {identity, text};
  add_included(text, headers, parts);
  return codegen::store::text_of(codegen::store::key_of(parts)).substr(0, 16);
}

}  // namespace hindcast::tests
