#include "codegen/store/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hindcast::codegen::store {
namespace {

constexpr time_t kTemporaryFilesLive = 3600;  // a write takes milliseconds; clocks of machines that share a disk differ

struct Found {
  std::string name;
  uint64_t size;
  std::pair<time_t, long> used;
};

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

uint64_t sweep_folder(int folder, uint64_t max_size, uint64_t max_files) {
  // Reopened, since reading a folder moves a position that all duplicates of a descriptor share.
  const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, CloseFolder> entries(own < 0 ? nullptr : fdopendir(own));
  if (!entries) {
    if (own >= 0) close(own);
    return 0;
  }
  uint64_t gone = 0;
  const auto remove = [&](const std::string& name) { gone += unlinkat(folder, name.c_str(), 0) == 0 ? 1 : 0; };

  std::vector<Found> kernels;
  uint64_t size = 0;
  while (const dirent* const entry = readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    const bool temporary = name.starts_with(kTemporaryFilePrefix);
    if (!temporary && !(name.starts_with(kKernelFilePrefix) && name.ends_with(kKernelFileSuffix))) continue;
    struct stat status;
    if (fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    if (temporary) {
      if (status.st_mtim.tv_sec + kTemporaryFilesLive < time(nullptr)) remove(entry->d_name);
      continue;
    }
    kernels.push_back({entry->d_name, static_cast<uint64_t>(status.st_size), {status.st_mtim.tv_sec, status.st_mtim.tv_nsec}});
    size += kernels.back().size;
  }
  std::sort(kernels.begin(), kernels.end(), [](const Found& a, const Found& b) { return a.used < b.used; });
  uint64_t files = kernels.size();
  for (const Found& kernel : kernels) {
    if (size <= max_size && files <= max_files) break;
    remove(kernel.name);
    size -= kernel.size;
    --files;
  }
  return gone;
}

}  // namespace hindcast::codegen::store
