#pragma once

#include <cstddef>

namespace hindcast::codegen {

/// The machine code of one body, for one backend. Each backend derives its own class.
class Kernel {
 public:
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// One holder's share of the kernel's memory when it has `holders` of them. Bytes.
  virtual size_t footprint_of_one(long holders) const = 0;

 protected:
  Kernel() = default;
};

}  // namespace hindcast::codegen
