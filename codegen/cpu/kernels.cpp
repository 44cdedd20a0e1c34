#include "codegen/cpu/kernels.h"

#include "codegen/cpu/clang/compiler.h"
#include "codegen/kernel/device_library.h"
#include "codegen/kernel/kernel_object.h"
#include "codegen/kernel/kernel_table.h"
#include "codegen/kernel/leaf_requests.h"
#include "base/fork_gate.h"

#include <exception>
#include <type_traits>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

const std::vector<SourceFile>& headers() {
  static const auto* headers = [] {
    auto* files = new std::vector<SourceFile>;
    for (const DeviceHeader& header : device_library()) files->push_back({header.name, header.text});
    return files;
  }();
  return *headers;
}

class WithClang final : public KernelCompiler {
 public:
  explicit WithClang(const ClangCompiler& clang) : clang_(clang) {}

  std::string_view identity() const override { return clang_.identity(); }

  std::string compile(std::string_view text) const override {
    KernelSource source;
    source.text = text;
    source.files = headers();
    return clang_.compile(source);
  }

 private:
  const ClangCompiler& clang_;
};

std::shared_ptr<const Kernel> load(const ClangCompiler& clang, std::string_view object, const Body& body) {
  auto kernel = std::make_shared<CpuKernel>();
  const auto loaded = clang.load(object);
  const auto find = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(loaded->symbol(name));
    HC_CHECK(function != nullptr, "a kernel without its function {}", name);
  };
  if (body.by_rows) {
    find(kernel->rows, "rows");
    if (has_leaves(body)) find(kernel->rows_to_leaves, "leaves");
  } else {
    find(kernel->dense, "dense");
    if (has_leaves(body)) find(kernel->leaves, "leaves");
  }
  kernel->code = loaded;
  kernel->bytes = object.size();
  return kernel;
}

// Used only inside of the compiler's gate, so that no fork finds its lock held.
KernelTable& table() {
  static auto* table = new KernelTable;
  return *table;
}

}  // namespace

std::shared_ptr<const CpuKernel> kernel_of(const Body& body, std::string& why_not) {
  const base::InsideCompiler inside;
  const auto clang = ClangCompiler::get(&why_not);
  if (!clang) return nullptr;
  try {
    const std::string text = source_of(body);
    const auto make = [&] {
      std::shared_ptr<const Kernel> made;
      load_object(WithClang(*clang), text, text, [&](std::string_view object) { made = load(*clang, object, body); });
      return made;
    };
    return std::static_pointer_cast<const CpuKernel>(table().find_or_make(text, make));
  } catch (const std::exception& error) {
    why_not = error.what();
    return nullptr;
  }
}

size_t known_kernels() {
  const base::InsideCompiler inside;
  return table().size();
}

}  // namespace hindcast::codegen::cpu
