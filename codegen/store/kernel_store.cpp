#include "codegen/store/kernel_store.h"

#include "codegen/store/kernel_file.h"
#include "codegen/store/open_file.h"
#include "codegen/store/sweep.h"
#include "base/format.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace hindcast::codegen::store {
namespace {

void count(std::atomic<uint64_t>& counter, uint64_t more = 1) { counter.fetch_add(more, std::memory_order_relaxed); }

bool is_refusal(Trust trust) { return trust == Trust::OthersCanWrite || trust == Trust::SomebodyElses || trust == Trust::WrongKind; }

/// nullopt on a system error. If the file is shorter or longer than `size`, returns what was read.
std::optional<std::string> read_all(int file, size_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file, bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

/// A new file that no other thread or process writes to. A process id is not a unique name: containers that share a folder
/// count theirs from 1, and a killed process may have left a file with our id.
std::pair<Descriptor, std::string> make_temporary_file(int folder) {
  static std::atomic<uint64_t> counter = 0;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const std::string name = base::format("{}{}-{}", kTemporaryFilePrefix, getpid(), counter.fetch_add(1, std::memory_order_relaxed));
    Descriptor file(openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file) return {std::move(file), name};
    if (errno != EEXIST) break;
  }
  return {Descriptor(), ""};
}

}  // namespace

std::string file_name_of(const KernelKey& key) {
  return base::format("{}{}-{}{}", kKernelFilePrefix, kStoreFormat, text_of(key), kKernelFileSuffix);
}

KernelStore::KernelStore(Options options) : options_(std::move(options)) {}

std::string KernelStore::problem() const {
  if (options_.folder.empty()) return "Compiled kernels are not kept: no folder is set (HINDCAST_CACHE_DIR), and there is no HOME.";
  const Opened opened = open_own_folder(options_.folder, true);
  const auto because = [&](std::string_view what, std::string_view advice) {
    return base::format("Compiled kernels are not kept in {}: {}. {}", options_.folder, what, advice);
  };
  constexpr std::string_view kElsewhere = "Set HINDCAST_CACHE_DIR to a folder of your own.";
  switch (opened.trust) {
    case Trust::Mine:
      return "";
    case Trust::OthersCanWrite:
      return because("other users may write to it, and what lies there is run as machine code", "Take the right from them: chmod go-w.");
    case Trust::SomebodyElses:
      return because("it belongs to another user, and what lies there is run as machine code", kElsewhere);
    case Trust::WrongKind:
      return because("it is not a folder", kElsewhere);
    case Trust::Missing:
    case Trust::Failed:
      return because(std::generic_category().message(opened.error), kElsewhere);
  }
  return "";
}

std::optional<std::string> KernelStore::read(const KernelKey& key) {
  const auto miss = [&](Trust trust) {
    if (is_refusal(trust)) count(counts_.refused);
    if (trust == Trust::Failed) count(counts_.read_failures);
    count(counts_.misses);
    return std::nullopt;
  };
  if (options_.folder.empty()) return miss(Trust::Missing);
  const Opened folder = open_own_folder(options_.folder, false);
  if (folder.trust != Trust::Mine) return miss(folder.trust);
  const Opened opened = open_own_file(folder.file.number(), file_name_of(key));
  if (opened.trust != Trust::Mine) return miss(opened.trust);

  struct stat status;
  if (fstat(opened.file.number(), &status) != 0) return miss(Trust::Failed);
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size < kKernelFileHeaderSize || size > kKernelFileHeaderSize + kMaxObjectSize) {
    count(counts_.corrupt);
    return miss(Trust::Missing);
  }
  auto bytes = read_all(opened.file.number(), size);
  if (!bytes) return miss(Trust::Failed);
  auto object = object_in(std::move(*bytes), key);
  if (!object) {
    count(counts_.corrupt);
    return miss(Trust::Missing);
  }
  futimens(opened.file.number(), nullptr);  // marks it as used; may fail in a read-only folder, which is never swept
  count(counts_.hits);
  return object;
}

bool KernelStore::write(const KernelKey& key, std::string_view object) {
  const auto fail = [&] {
    count(counts_.write_failures);
    return false;
  };
  if (options_.folder.empty()) return false;
  if (object.size() > kMaxObjectSize) return fail();
  const Opened folder = open_own_folder(options_.folder, true);
  if (is_refusal(folder.trust)) {
    count(counts_.refused);
    return false;
  }
  if (folder.trust != Trust::Mine || !write_file(folder.file.number(), key, object)) return fail();
  count(counts_.writes);
  if (sweep_is_due(kKernelFileHeaderSize + object.size()))
    count(counts_.swept, sweep_folder(folder.file.number(), options_.max_size, options_.max_files));
  return true;
}

bool KernelStore::write_file(int folder, const KernelKey& key, std::string_view object) {
  auto [file, temporary] = make_temporary_file(folder);
  if (!file) return false;
  const bool written = write_all(file.number(), make_kernel_file_header(key, object)) && write_all(file.number(), object);
  if (file.close() && written && renameat(folder, temporary.c_str(), folder, file_name_of(key).c_str()) == 0) return true;
  unlinkat(folder, temporary.c_str(), 0);
  return false;
}

/// The first write of a process sweeps; otherwise many short processes could fill the disk without any of them ever sweeping.
bool KernelStore::sweep_is_due(size_t written) {
  const uint64_t writes = writes_since_sweep_.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t bytes = bytes_since_sweep_.fetch_add(written, std::memory_order_relaxed) + written;
  const bool first = !ever_swept_.exchange(true, std::memory_order_relaxed);
  if (!first && writes < options_.writes_per_sweep && bytes < options_.max_size / 8) return false;
  writes_since_sweep_.store(0, std::memory_order_relaxed);
  bytes_since_sweep_.store(0, std::memory_order_relaxed);
  return true;
}

StoreCounts KernelStore::counts() const {
  const auto now = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {now(counts_.hits),          now(counts_.misses), now(counts_.refused),        now(counts_.corrupt),
          now(counts_.read_failures), now(counts_.writes), now(counts_.write_failures), now(counts_.swept)};
}

}  // namespace hindcast::codegen::store
