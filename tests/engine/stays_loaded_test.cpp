// The libraries stay loaded after a dlclose: their threads may run, and LibTorch keeps pointers to the engine.

#include <elf.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace hindcast::tests {
namespace {

namespace fs = std::filesystem;

bool says_nodelete(const fs::path& library) {
  std::ifstream in(library, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(bytes.data() + header->e_phoff);
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const Elf64_Dyn*>(bytes.data() + segments[i].p_offset);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_FLAGS_1) return (entry->d_un.d_val & DF_1_NODELETE) != 0;
    }
  }
  return false;
}

TEST(StaysLoaded, EveryLibraryOfTheBuild) {
  const fs::path build = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  std::vector<fs::path> libraries;
  for (const char* name : {"lib/libhindcast.so", "lib/libhindcast_clang.so", "python/hindcast/libhindcast_python.so"}) {
    if (fs::exists(build / name)) libraries.push_back(build / name);
  }
  if (libraries.empty()) GTEST_SKIP() << "no library was built";
  for (const fs::path& library : libraries) EXPECT_TRUE(says_nodelete(library)) << library;
}

}  // namespace
}  // namespace hindcast::tests
