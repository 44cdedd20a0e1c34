#include "base/unloads.h"

#include "base/fork.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

namespace hindcast::base {
namespace {

const void* library_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

uint64_t unload_count() {
  uint64_t count = 0;
  // Every library reports the same count: the first is enough.
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* count_of) {
        *static_cast<uint64_t*>(count_of) = info->dlpi_subs + 1;
        return 1;
      },
      &count);
  return count;
}

bool stays_loaded(const void* address) {
  static constinit MadeOnce<const void*const> program, own;
  const void* const library = library_of(address);
  return library != nullptr && (library == program.by([] { return library_of(reinterpret_cast<const void*>(getauxval(AT_ENTRY))); }) ||
                                library == own.by([] { return library_of(reinterpret_cast<const void*>(&unload_count)); }));
}

}  // namespace hindcast::base
