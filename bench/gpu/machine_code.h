#pragma once

#include <map>
#include <string>

#include "codegen/cuda/nvrtc.h"

namespace hindcast::bench::gpu {

struct Registers {
  int used = 0;           // by a thread
  int spilled_bytes = 0;  // stored and loaded
};

/// What the code of texts needs on an H100 or an H200, by entry point. A text is compiled once.
class MachineCode {
 public:
  explicit MachineCode(const codegen::cuda::Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  const Registers& registers_of(const std::string& text, const std::string& entry);

 private:
  const codegen::cuda::Nvrtc& nvrtc_;
  std::map<std::string, std::map<std::string, Registers>> by_text_;
};

}  // namespace hindcast::bench::gpu
