#include "codegen/cuda/entry_text.h"

#include "base/format.h"

namespace hindcast::codegen::cuda {

using base::format;

std::string head_of_text(c10::ArrayRef<std::string_view> skeletons) {
  std::string text = "#include \"codegen/device/ops.h\"\n";
  for (const std::string_view skeleton : skeletons) text += format("#include \"codegen/device/skeletons/{}.h\"\n", skeleton);
  return text + "using namespace hindcast::device;\n\n";
}

std::string entry_point(std::string_view name, std::string_view argument, std::string_view bounds, std::string_view call) {
  return format("extern \"C\" __global__ void __launch_bounds__({}) {}(const {} arguments) {{ {}; }}\n", bounds, name, argument, call);
}

}  // namespace hindcast::codegen::cuda
