#include "tests/machine_code/compile_uses.h"

#include "codegen/kernel/device_library.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

namespace hindcast::tests {

std::vector<Uses> compile_uses(const codegen::cuda::Nvrtc& nvrtc, const std::vector<TextFor>& texts) {
  std::vector<Uses> uses(texts.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < texts.size(); i = next++) {
      const auto options = codegen::cuda::kernel_options(texts[i].architecture);
      uses[i] = uses_in(nvrtc.compile(*texts[i].text, codegen::device_library(), options).log);
    }
  };
  std::vector<std::future<void>> workers;
  for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1U); ++i) workers.push_back(std::async(std::launch::async, work));
  for (auto& worker : workers) worker.get();
  return uses;
}

}  // namespace hindcast::tests
