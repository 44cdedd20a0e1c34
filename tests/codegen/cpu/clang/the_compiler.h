#pragma once
// The compiler for tests; skips with the reason if there is none.

#include "codegen/cpu/clang/compiler.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace hindcast::codegen::cpu {

/// If the build created the plug-in and cannot open it, tests must fail; they are skipped only if it was not built.
#ifdef HINDCAST_HAS_CLANG
#define HC_GET_COMPILER(name)                                               \
  std::string why_not;                                                      \
  const std::shared_ptr<ClangCompiler> name = ClangCompiler::get(&why_not); \
  ASSERT_TRUE(name) << why_not
#else
#define HC_GET_COMPILER(name)                                               \
  std::string why_not;                                                      \
  const std::shared_ptr<ClangCompiler> name = ClangCompiler::get(&why_not); \
  if (!name) GTEST_SKIP() << why_not
#endif

template <class Function>
Function* function(const LoadedKernel& kernel, const std::string& name) {
  return reinterpret_cast<Function*>(kernel.symbol(name));
}

}  // namespace hindcast::codegen::cpu
