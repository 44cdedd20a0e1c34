#include "tests/cuda_emulator/runtime/shared_arrays.h"

#include <cxxabi.h>
#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace hindcast::tests::cuda {
namespace {

template <class T>
std::vector<T> table(const std::string& file, uint64_t offset, uint64_t bytes) {
  std::vector<T> entries(bytes / sizeof(T));
  std::memcpy(entries.data(), file.data() + offset, entries.size() * sizeof(T));
  return entries;
}

std::string readable(const char* symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = text != nullptr ? text : symbol;
  std::free(text);
  return name;
}

}  // namespace

std::vector<SharedArray> shared_arrays_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  std::vector<SharedArray> arrays;
  if (file.size() < sizeof(Elf64_Ehdr)) return arrays;
  const auto header = table<Elf64_Ehdr>(file, 0, sizeof(Elf64_Ehdr)).front();
  const auto sections = table<Elf64_Shdr>(file, header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* names = file.data() + sections[section.sh_link].sh_offset;
    for (const Elf64_Sym& symbol : table<Elf64_Sym>(file, section.sh_offset, section.sh_size)) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF) continue;
      arrays.push_back({readable(names + symbol.st_name), symbol.st_value, symbol.st_size});
    }
  }
  return arrays;
}

}  // namespace hindcast::tests::cuda
