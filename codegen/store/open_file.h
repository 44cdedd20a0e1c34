#pragma once
// Opens files and folders that only this user can change. Checks the open descriptor, so that what was checked is what is used.

#include <string>
#include <utility>

namespace hindcast::codegen::store {

/// Owns a file descriptor; -1 if none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  /// Returns false if close() reports that an earlier write failed.
  bool close();

 private:
  int number_ = -1;
};

enum class Trust { Mine, Missing, Failed, OthersCanWrite, SomebodyElses, WrongKind };

struct Opened {
  Descriptor file;
  Trust trust = Trust::Failed;
  int error = 0;  // errno for Failed
};

/// Opens the folder at `path`; if it is missing and `make` is true, creates it and its parents.
Opened open_own_folder(const std::string& path, bool make);
/// Opens a regular file in an open folder for reading.
Opened open_own_file(int folder, const std::string& name);

}  // namespace hindcast::codegen::store
