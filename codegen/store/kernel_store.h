#pragma once
// Compiled kernels on disk, shared between processes: one file per key, named after the key and the format.
//
//   write   a temporary file, then rename: a reader sees a whole file or none, and of two writers one wins with the same
//           bytes. Nothing is synced to disk: after a power failure a file may have wrong content, which its checksum
//           detects, and the kernel is compiled again.
//   read    checked (see kernel_file.h), then marked as used by updating its time stamp
//   sweep   at the first write and then now and then: deletes the least recently used files until the rest fits, and
//           temporary files left behind by killed processes
//
// What is read here is run as machine code. So the folder and the file must be owned by the user and not be writable by anyone
// else; symbolic links to files are not followed. A folder that fails these checks is neither used nor changed.
//
// Failures never reach the caller: a failed read is a miss, a failed write returns false, and both are counted. Files are
// deleted only for their age; one with wrong content is replaced by the next write of its key.
//
// No lock and no file is held between calls: threads, forks and other processes need no special handling, and a deleted
// folder is created again by the next write.

#include "codegen/store/kernel_key.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hindcast::codegen::store {

struct StoreCounts {
  uint64_t hits = 0;
  uint64_t misses = 0;         // for any reason, including those below
  uint64_t refused = 0;        // the folder or a file is not trusted
  uint64_t corrupt = 0;        // a file had wrong content
  uint64_t read_failures = 0;  // an existing file could not be read
  uint64_t writes = 0;
  uint64_t write_failures = 0;  // a full disk, a folder that may not be written to
  uint64_t swept = 0;           // files deleted
};

class KernelStore {
 public:
  struct Options {
    std::string folder;  // empty: no store
    uint64_t max_size = uint64_t{256} << 20;
    uint64_t max_files = 1 << 16;  // a small file takes more disk space than its size
    uint32_t writes_per_sweep = 64;
  };

  explicit KernelStore(Options options);

  /// Creates the folder if it is missing. Returns an empty string if it can be used, otherwise a sentence that says why not and what to
  /// do. Reads and writes do their own checks; this is for reporting the problem once.
  std::string problem() const;

  std::optional<std::string> read(const KernelKey& key);
  bool write(const KernelKey& key, std::string_view object);

  StoreCounts counts() const;
  const Options& options() const { return options_; }

 private:
  bool write_file(int folder, const KernelKey& key, std::string_view object);
  bool sweep_is_due(size_t written);

  struct Counters {
    std::atomic<uint64_t> hits = 0, misses = 0, refused = 0, corrupt = 0, read_failures = 0, writes = 0, write_failures = 0, swept = 0;
  };

  Options options_;
  Counters counts_;
  std::atomic<uint64_t> writes_since_sweep_ = 0;
  std::atomic<uint64_t> bytes_since_sweep_ = 0;
  std::atomic<bool> ever_swept_ = false;
};

/// The name of a key's file, in the store's folder.
std::string file_name_of(const KernelKey& key);

}  // namespace hindcast::codegen::store
