#include "codegen/cpu/kernels.h"

#include "base/fork.h"
#include "codegen/cpu/clang/compiler.h"
#include "codegen/cpu/source.h"
#include "codegen/kernel/device_library.h"
#include "codegen/kernel/kernel_object.h"
#include "codegen/kernel/kernel_table.h"
#include "codegen/kernel/leaf_requests.h"
#include "base/fork_gate.h"
#include "base/log.h"

#include <c10/util/FunctionRef.h>

#include <exception>
#include <type_traits>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

const std::vector<SourceFile>& headers() {
  static constinit base::MadeOnce<const std::vector<SourceFile>> headers;
  return headers.by([] {
    std::vector<SourceFile> files;
    for (const DeviceHeader& header : device_library()) files.push_back({header.name, header.text});
    return files;
  });
}

// Parses the headers of all kernels.
class Parser final : public KernelCompiler {
 public:
  explicit Parser(const ClangCompiler& clang) : clang_(clang) {}

  std::string_view identity() const override { return clang_.identity(); }
  std::string compile(std::string_view text) const override { return clang_.parse({.files = headers(), .prelude = text}); }

 private:
  const ClangCompiler& clang_;
};

// Most of a small kernel's compile would be the parsing of headers: they are parsed once, and kept on disk. Empty if that failed.
const std::string& parsed_headers(const ClangCompiler& clang) {
  static constinit base::MadeOnce<const std::string> parsed;
  return parsed.by([&] {
    try {
      return object_of(Parser(clang), std::string(kIncludesOfKernels));
    } catch (const std::exception& error) {
      HC_LOG(CompiledAutograd, Warning, "kernels are compiled without a precompiled header: {}", error.what());
      return std::string();
    }
  });
}

class WithClang final : public KernelCompiler {
 public:
  explicit WithClang(const ClangCompiler& clang) : clang_(clang) {}

  std::string_view identity() const override { return clang_.identity(); }

  std::string compile(std::string_view text) const override {
    KernelSource source;
    source.text = text;
    source.files = headers();
    if (const std::string& parsed = parsed_headers(clang_); !parsed.empty()) {
      source.prelude = kIncludesOfKernels;
      source.parsed = parsed;
      try {
        return clang_.compile(source);
      } catch (const CompileError&) {  // e.g. the stored header was made by a different build of the compiler with the same identity
        source.prelude = source.parsed = {};
      }
    }
    return clang_.compile(source);
  }

 private:
  const ClangCompiler& clang_;
};

std::shared_ptr<CpuKernel> load_blocks(const ClangCompiler& clang, std::string_view object) {
  auto kernel = std::make_shared<CpuKernel>();
  const auto loaded = clang.load(object);
  kernel->product_blocks = loaded->symbol("blocks");
  HC_CHECK(kernel->product_blocks != nullptr, "blocks of a product without their table");
  kernel->code = loaded;
  kernel->bytes = object.size();
  return kernel;
}

std::shared_ptr<CpuKernel> load(const ClangCompiler& clang, std::string_view object, const Body& body) {
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
    if (body.product) find(kernel->product, "product");
    if (has_leaves(body)) find(kernel->leaves, "leaves");
  }
  kernel->code = loaded;
  kernel->bytes = object.size();
  return kernel;
}

// Used only inside the compiler's fork gate, so that its lock is free at a fork.
KernelTable& table() {
  static constinit base::MadeOnce<KernelTable> table;
  return table.get();
}

std::shared_ptr<const CpuKernel> kernel_of_text(const std::string& text, const ClangCompiler& clang,
                                                c10::function_ref<std::shared_ptr<CpuKernel>(std::string_view object)> load) {
  const auto make = [&] {
    std::shared_ptr<const Kernel> made;
    load_object(WithClang(clang), text, text, [&](std::string_view object) { made = load(object); });
    return made;
  };
  return std::static_pointer_cast<const CpuKernel>(table().find_or_make(text, make));
}

}  // namespace

std::shared_ptr<const CpuKernel> kernel_of(const Body& body, std::string& why_not) {
  const base::InsideCompiler inside;
  const auto clang = ClangCompiler::get(&why_not);
  if (!clang) return nullptr;
  try {
    std::shared_ptr<const CpuKernel> blocks;
    if (body.product) {
      blocks = kernel_of_text(product_blocks_source(body.product->type), *clang,
                              [&](std::string_view object) { return load_blocks(*clang, object); });
    }
    return kernel_of_text(source_of(body), *clang, [&](std::string_view object) {
      auto kernel = load(*clang, object, body);
      kernel->blocks = blocks;
      if (blocks) kernel->product_blocks = blocks->product_blocks;
      return kernel;
    });
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
