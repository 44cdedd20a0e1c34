#include "engine/diagnosis/reproducer.h"

#include "base/first_line.h"
#include "codegen/kernel/backend.h"
#include "codegen/store/store_folder.h"
#include "base/log.h"
#include "engine/diagnosis/non_finite.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace hindcast::engine {
namespace {

namespace fs = std::filesystem;
using base::format;

constexpr uint32_t kMost = 20;

/// Empty if reproducers are not to be written.
fs::path folder_of_all() {
  std::string parent;
  if (const char* const given = secure_getenv("HINDCAST_REPRODUCER_DIR"); given != nullptr && *given != '\0') {
    if (std::string_view(given) != "0") parent = fs::absolute(given);
  } else {
    parent = codegen::store::default_store_folder();
  }
  return parent.empty() ? fs::path() : fs::path(parent) / "hindcast-reproducers";
}

fs::path make_folder(const fs::path& parent, uint32_t graph) {
  fs::create_directories(parent);
  for (uint32_t i = 0; i < 1000; ++i) {
    const fs::path folder = parent / format("graph{}-{}-{}", graph, getpid(), i);
    if (fs::create_directory(folder)) return folder;
  }
  throw std::runtime_error("no name is free");
}

void write(const fs::path& file, std::string_view text) {
  fs::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) throw std::runtime_error("cannot write " + file.string());
}

std::string describe_inputs(const Refused& refused) {
  std::vector<uint32_t> ids;
  if (refused.group) {
    for (const auto input : codegen::inputs_of(*refused.group)) ids.push_back(input.index);
  } else {
    for (const auto& [id, tensor] : refused.given) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
  }
  std::string text;
  for (const uint32_t id : ids) {
    const auto found = refused.given.find(id);
    if (found == refused.given.end() || !found->second.defined()) continue;
    const at::Tensor& tensor = found->second;
    text += format("value {}: {}", id, describe_values(tensor));
    if (tensor.layout() == at::kStrided) text += format(", strides {}", tensor.strides());
    text += "\n";
  }
  return text;
}

void write_kernel(const fs::path& folder, const Refused& refused) {
  const codegen::Backend* const backend = codegen::backend_of(refused.graph);
  if (backend == nullptr) return;
  for (const codegen::ProgramFile& file : backend->reproducer(refused.graph, *refused.group, refused.given))
    write(folder / file.name, file.text);
}

}  // namespace

std::string write_reproducer(const Refused& refused) noexcept {
  static std::atomic<uint32_t> written = 0;
  try {
    const fs::path parent = folder_of_all();
    if (parent.empty() || written++ >= kMost) return "";
    const fs::path folder = make_folder(parent, refused.graph.id);
    write(folder / "reason.txt", format("{}\nLibTorch {}\n", refused.reason, TORCH_VERSION));
    write(folder / "graph.txt", refused.graph.print());
    write(folder / "inputs.txt", describe_inputs(refused));
    if (refused.group) write_kernel(folder, refused);
    return folder.string();
  } catch (const std::exception& error) {
    HC_LOG(CompiledAutograd, Warning, "no reproducer of what was refused: {}", base::first_line(error));
  }
  return "";
}

}  // namespace hindcast::engine
