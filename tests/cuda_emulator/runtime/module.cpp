#include "tests/cuda_emulator/runtime/module.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <stdexcept>

#include "tests/cuda_emulator/runtime/calls.h"
#include "tests/cuda_emulator/runtime/shared_arrays.h"

namespace hindcast::tests::cuda {
namespace {

void* symbol(void* library, const std::string& name) {
  void* found = dlsym(library, name.c_str());
  if (found == nullptr) throw std::runtime_error("a compiled kernel lacks " + name);
  return found;
}

/// The table of the segments of a shared object in memory.
struct Parts {
  uint64_t base;  // of the shared object
  Span image = {};
  uint64_t thread_local_bytes = 0;
};

int add_parts(dl_phdr_info* info, size_t, void* data) {
  auto& parts = *static_cast<Parts*>(data);
  if (info->dlpi_addr != parts.base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_TLS) parts.thread_local_bytes = part.p_memsz;
    if (part.p_type == PT_LOAD) parts.image.end = std::max<uint64_t>(parts.image.end, parts.base + part.p_vaddr + part.p_memsz);
  }
  parts.image.begin = parts.base;
  return 1;
}

}  // namespace

Module::Module(const std::string& path, const std::vector<std::string>& kernels)
    : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)), shared_(shared_arrays_of(path)) {
  if (library_ == nullptr) throw std::runtime_error(std::string("a compiled kernel cannot be loaded: ") + dlerror());
  bind_ = reinterpret_cast<Bind*>(symbol(library_, "hindcast_emulator_bind"));
  for (const std::string& name : kernels) {
    kernels_[name] = {this, name, reinterpret_cast<void (*)(void**)>(symbol(library_, "hindcast_emulator_entry_" + name))};
  }
  link_map* map = nullptr;
  dlinfo(library_, RTLD_DI_LINKMAP, &map);
  Parts parts = {map->l_addr, {}};
  dl_iterate_phdr(&add_parts, &parts);
  image_ = parts.image;
  shared_bytes_ = parts.thread_local_bytes;
}

Module::~Module() { dlclose(library_); }

const Kernel& Module::kernel(const std::string& name) const {
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) throw std::runtime_error("no kernel " + name + " was compiled");
  return found->second;
}

Binding Module::bind() const {
  Binding binding = {bind_(&calls_for_kernels()), {}, {}};
  const auto dynamic = std::find_if(shared_.begin(), shared_.end(), [](const SharedArray& array) { return array.name == "smem"; });
  if (dynamic == shared_.end()) throw std::runtime_error("a compiled kernel has no table of symbols");
  const uint64_t begin = reinterpret_cast<uint64_t>(binding.variables.dynamic_shared) - dynamic->offset;
  binding.shared_memory = {begin, begin + shared_bytes_};
  for (const SharedArray& array : shared_) {
    binding.shared_arrays.push_back({array.name, {begin + array.offset, begin + array.offset + array.bytes}});
  }
  return binding;
}

}  // namespace hindcast::tests::cuda
