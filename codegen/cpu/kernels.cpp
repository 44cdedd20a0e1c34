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
#include <mutex>
#include <type_traits>
#include <utility>
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

class HeaderPrecompiler final : public KernelCompiler {
 public:
  explicit HeaderPrecompiler(const ClangCompiler& clang) : clang_(clang) {}

  std::string_view identity() const override { return clang_.identity(); }
  std::string compile(std::string_view text) const override { return clang_.precompile({.files = headers(), .prelude = text}); }

 private:
  const ClangCompiler& clang_;
};

// The precompiled header of all kernels: parsing these headers would be most of a small kernel's compile. Used only inside the compiler's
// fork gate, so that its lock is free at a fork.
class PrecompiledHeader {
 public:
  // The bytes; nullptr if it could not be made, or was dropped.
  std::shared_ptr<const std::string> get(const ClangCompiler& clang) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_made_, true)) {
      try {
        bytes_ = std::make_shared<const std::string>(stored_or_compiled(HeaderPrecompiler(clang), std::string(kIncludesOfKernels)));
      } catch (const std::exception& error) {
        HC_LOG(CompiledAutograd, Warning, "kernels are compiled without a precompiled header: {}", error.what());
      }
    }
    return bytes_;
  }
  // Called for a kernel that failed to compile with it, and compiled without it.
  void drop(const CompileError& error) {
    const std::lock_guard lock(mutex_);
    if (bytes_) HC_LOG(CompiledAutograd, Warning, "the precompiled header is not used any more: {}", error.diagnostics());
    bytes_ = nullptr;
  }

 private:
  std::mutex mutex_;
  bool is_made_ = false;
  std::shared_ptr<const std::string> bytes_;
};
PrecompiledHeader& precompiled_header() {
  static constinit base::MadeOnce<PrecompiledHeader> header;
  return header.get();
}

class WithClang final : public KernelCompiler {
 public:
  explicit WithClang(const ClangCompiler& clang) : clang_(clang) {}

  std::string_view identity() const override { return clang_.identity(); }

  std::string compile(std::string_view text) const override {
    KernelSource source;
    source.text = text;
    source.files = headers();
    const auto header = precompiled_header().get(clang_);
    if (!header) return clang_.compile(source);
    KernelSource with_header = source;
    with_header.prelude = kIncludesOfKernels;
    with_header.precompiled = *header;
    try {
      return clang_.compile(with_header);
    } catch (const CompileError& first) {
      return compile_without(source, first);
    }
  }

 private:
  // The stored header may be at fault, such as one made by a different build of the compiler with the same identity.
  std::string compile_without(const KernelSource& source, const CompileError& first) const {
    std::string object;
    try {
      object = clang_.compile(source);
    } catch (const CompileError&) {
      throw first;
    }
    precompiled_header().drop(first);
    return object;
  }

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
