#include "codegen/store/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace hindcast::codegen::store {
namespace {

Opened checked(Descriptor file, mode_t kind) {
  struct stat status;
  if (fstat(file.number(), &status) != 0) return {.trust = Trust::Failed, .error = errno};
  if ((status.st_mode & S_IFMT) != kind) return {.trust = Trust::WrongKind};
  if (status.st_uid != geteuid()) return {.trust = Trust::SomebodyElses};
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return {.trust = Trust::OthersCanWrite};
  return {.file = std::move(file), .trust = Trust::Mine};
}

/// Existing folders are left unchanged; errors are detected when the folder is opened.
void make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) mkdir(path.substr(0, end).c_str(), 0700);
  mkdir(path.c_str(), 0700);
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

bool Descriptor::close() { return ::close(std::exchange(number_, -1)) == 0; }

Opened open_own_folder(const std::string& path, bool make) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  Descriptor folder(::open(path.c_str(), kFlags));
  if (!folder && errno == ENOENT && make) {
    make_folders(path);
    folder = Descriptor(::open(path.c_str(), kFlags));
  }
  if (folder) return checked(std::move(folder), S_IFDIR);
  if (errno == ENOENT) return {.trust = Trust::Missing, .error = ENOENT};
  return {.trust = errno == ENOTDIR ? Trust::WrongKind : Trust::Failed, .error = errno};
}

Opened open_own_file(int folder, const std::string& name) {
  // O_NONBLOCK: opening a pipe with that name must not block.
  Descriptor file(openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file) return checked(std::move(file), S_IFREG);
  if (errno == ENOENT) return {.trust = Trust::Missing};
  return {.trust = errno == ELOOP ? Trust::WrongKind : Trust::Failed, .error = errno};
}

}  // namespace hindcast::codegen::store
