#pragma once
// Compiled kernels on disk, shared between processes: a file per key, named after it and the format.
//
//   write   a temporary file, then rename: a reader sees all of a file or none of it, and of two writers one wins with the
//           same bytes. Nothing is synced to the disk: after a loss of power a file may be there with other content, which
//           its checksum shows, and the kernel is compiled again.
//   read    checked (see kernel_file.h), then marked as used by its time stamp
//   sweep   at the first write and then once in a while: the longest unused files go until the rest fits, and temporary
//           files that a killed process left behind
//
// What is read here is run as machine code. So the folder and the file must belong to the user and be writable by nobody
// else; links are not followed to a file. A folder that is not so is not used and not changed.
//
// Whatever goes wrong costs the store and not the caller: a read is then a miss, a write returns false, both are counted. A
// file is deleted for its age only; one whose content is wrong is replaced by the next write of its key.
//
// Holds no lock and no open file between calls: threads, forks and other processes need no thought, and a folder that is
// deleted is made again by the next write.

#include "codegen/store/kernel_key.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hindcast::codegen::store {

struct StoreCounts {
  uint64_t hits = 0;
  uint64_t misses = 0;         // of any reason, also of those below
  uint64_t refused = 0;        // the folder or a file may not be trusted
  uint64_t corrupt = 0;        // a file's content was wrong
  uint64_t read_failures = 0;  // the system could not read a file that is there
  uint64_t writes = 0;
  uint64_t write_failures = 0;  // a full disk, a folder that may not be written to
  uint64_t swept = 0;           // files deleted
};

class KernelStore {
 public:
  struct Options {
    std::string folder;  // empty: there is no store
    uint64_t max_size = uint64_t{256} << 20;
    uint64_t max_files = 1 << 16;  // a small one takes more of a disk than its size
    uint32_t writes_per_sweep = 64;
  };

  explicit KernelStore(Options options);

  /// Makes the folder where it is missing. Empty if it can be used, else a sentence that says why not and what to do. Reads
  /// and writes look for themselves; this is for whoever wants to say it once.
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

/// The file of a key, below the store's folder.
std::string file_name_of(const KernelKey& key);

}  // namespace hindcast::codegen::store
