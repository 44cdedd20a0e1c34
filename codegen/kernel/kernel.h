#pragma once

#include <cstddef>

namespace hindcast::codegen {

/// The machine code of one body, for one backend. A backend's calls hold its own class of it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// The part of its memory that one of so many holders answers for. Bytes.
  virtual size_t footprint_of_one(long holders) const = 0;

 protected:
  Kernel() = default;
};

}  // namespace hindcast::codegen
