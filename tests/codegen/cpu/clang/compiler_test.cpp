// Source to functions: the result, and the errors for refused sources.

#include "tests/codegen/cpu/clang/the_compiler.h"

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

using Loop = void(const float*, float*, long);

constexpr std::string_view kLoop =
    "extern \"C\" void run(const float* __restrict in, float* __restrict out, long n) {\n"
    "  for (long i = 0; i < n; ++i) out[i] = in[i] * 2.f + 1.f;\n"
    "}\n";

/// The diagnostics of a source that Clang refuses; empty if it does not.
std::string diagnostics_of(const ClangCompiler& compiler, std::string_view text) {
  try {
    compiler.compile({.text = text});
  } catch (const CompileError& error) {
    return error.diagnostics();
  }
  return "";
}

TEST(ClangCompiler, CompilesAndRunsALoop) {
  HC_GET_COMPILER(compiler);
  const auto kernel = compiler->load(compiler->compile({.text = kLoop}));
  auto* const run = function<Loop>(*kernel, "run");
  ASSERT_NE(run, nullptr);
  std::vector<float> in(1001), out(1001, -1.f);
  std::iota(in.begin(), in.end(), 0.f);
  run(in.data(), out.data(), 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(out[i], 2.f * static_cast<float>(i) + 1.f);
  EXPECT_EQ(out[1000], -1.f);
}

TEST(ClangCompiler, HasNoFunctionOfAnotherName) {
  HC_GET_COMPILER(compiler);
  const auto kernel =
      compiler->load(compiler->compile({.text = "static int hidden() { return 1; } extern \"C\" int shown() { return hidden(); }"}));
  EXPECT_NE(kernel->symbol("shown"), nullptr);
  EXPECT_EQ(kernel->symbol("hidden"), nullptr);
  EXPECT_EQ(kernel->symbol("malloc"), nullptr);
}

TEST(ClangCompiler, GivesEqualBytesForEqualSources) {
  HC_GET_COMPILER(compiler);
  EXPECT_EQ(compiler->compile({.text = kLoop}), compiler->compile({.text = kLoop}));
  EXPECT_NE(compiler->compile({.text = kLoop}), compiler->compile({.text = kLoop, .optimisation = 0}));
}

TEST(ClangCompiler, FindsTheFilesThatItIsGiven) {
  HC_GET_COMPILER(compiler);
  const std::array<SourceFile, 2> files = {{
      {"codegen/device/ops.h", "#pragma once\n#include \"codegen/device/two.h\"\ninline int three() { return two() + 1; }\n"},
      {"codegen/device/two.h", "inline int two() { return 2; }\n"},
  }};
  const std::string_view text = "#include \"codegen/device/ops.h\"\nextern \"C\" int run() { return three(); }\n";
  const auto kernel = compiler->load(compiler->compile({.text = text, .files = files}));
  EXPECT_EQ(function<int()>(*kernel, "run")(), 3);
}

TEST(ClangCompiler, ParsesAPreludeOnce) {
  HC_GET_COMPILER(compiler);
  const std::array<SourceFile, 1> two = {{{"two.h", "#pragma once\ntemplate <class T> T two() { return 2; }\n"}}};
  const std::array<SourceFile, 1> six = {{{"two.h", "#pragma once\ntemplate <class T> T two() { return 6; }\n"}}};
  const std::string_view prelude = "#include \"two.h\"\n", text = "#include \"two.h\"\nextern \"C\" int run() { return two<int>(); }\n";
  const std::string precompiled = compiler->precompile({.files = two, .prelude = prelude});
  EXPECT_EQ(precompiled, compiler->precompile({.files = two, .prelude = prelude}));
  const auto result = [&](const KernelSource& source) { return function<int()>(*compiler->load(compiler->compile(source)), "run")(); };
  EXPECT_EQ(result({.text = text, .files = six}), 6);
  EXPECT_EQ(result({.text = text, .files = six, .prelude = prelude, .precompiled = precompiled}), 2) << "the file was read again";
}

TEST(ClangCompiler, RefusesAPreludeThatIsNone) {
  HC_GET_COMPILER(compiler);
  EXPECT_THROW(compiler->precompile({.prelude = "#include \"none.h\"\n"}), CompileError);
  EXPECT_THROW(compiler->compile({.text = kLoop, .prelude = "\n", .precompiled = "no header"}), CompileError);
  EXPECT_EQ(diagnostics_of(*compiler, kLoop), "") << "the next compile is not disturbed";
}

TEST(ClangCompiler, FindsNoFileOfTheDisk) {
  HC_GET_COMPILER(compiler);
  for (const char* name : {"<stddef.h>", "<math.h>", "<vector>", "\"/usr/include/stdlib.h\""}) {
    EXPECT_NE(diagnostics_of(*compiler, std::string("#include ") + name + "\n").find("file not found"), std::string::npos) << name;
  }
}

TEST(ClangCompiler, ASyntaxErrorShowsTheDiagnosticsAndTheNumberedSource) {
  HC_GET_COMPILER(compiler);
  const std::string text = "extern \"C\" int run() {\n  return 1 +;\n}\n";
  try {
    compiler->compile({.text = text});
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_NE(error.diagnostics().find("kernel.cpp:2:13: error: expected expression"), std::string::npos) << error.diagnostics();
    const std::string what = error.what();
    EXPECT_NE(what.find(error.diagnostics()), std::string::npos) << what;
    EXPECT_NE(what.find("\n   1  extern \"C\" int run() {\n   2    return 1 +;\n   3  }\n"), std::string::npos) << what;
  }
  EXPECT_EQ(diagnostics_of(*compiler, kLoop), "") << "the next compile is not disturbed";
}

TEST(ClangCompiler, SaysNothingOfWarnings) {
  HC_GET_COMPILER(compiler);
  EXPECT_EQ(diagnostics_of(*compiler, "extern \"C\" int run(unsigned a) { int unused; return a < 0; }"), "");
}

TEST(ClangCompiler, MayCallLibmAndMemoryFunctions) {
  HC_GET_COMPILER(compiler);
  const std::string_view text =
      "extern \"C\" double erf(double); extern \"C\" void* memcpy(void*, const void*, unsigned long);\n"
      "extern \"C\" double run(double x) { double y; memcpy(&y, &x, sizeof(y)); return erf(y) + __builtin_exp(x); }\n"
      "extern \"C\" void copy(char* to, const char* from, unsigned long n) { __builtin_memcpy(to, from, n); }\n";
  const auto kernel = compiler->load(compiler->compile({.text = text}));
  EXPECT_EQ(function<double(double)>(*kernel, "run")(0.5), std::erf(0.5) + std::exp(0.5));
  std::string to = "....", from = "abcd";
  function<void(char*, const char*, unsigned long)>(*kernel, "copy")(to.data(), from.data(), 3);
  EXPECT_EQ(to, "abc.");
}

TEST(ClangCompiler, MayCallNothingElse) {
  HC_GET_COMPILER(compiler);
  const std::string object =
      compiler->compile({.text = "extern \"C\" int system(const char*); extern \"C\" int run() { return system(\"\"); }"});
  try {
    compiler->load(object);
    FAIL() << "loaded";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("not in libm, and not part of the kernel: system"), std::string::npos) << error.what();
  }
}

TEST(ClangCompiler, RefusesAGlobalObjectWithAConstructor) {
  HC_GET_COMPILER(compiler);
  const std::string object =
      compiler->compile({.text = "int f(); extern \"C\" double cos(double); double x = cos(1.0); extern \"C\" double run() { return x; }"});
  EXPECT_THROW(compiler->load(object), Unsupported);
}

TEST(ClangCompiler, RefusesBytesThatAreNoObject) {
  HC_GET_COMPILER(compiler);
  const std::string object = compiler->compile({.text = kLoop});
  for (const std::string& bytes :
       {std::string(), std::string("x"), std::string(1000, 'x'), object.substr(0, 100), object.substr(0, object.size() / 2)})
    EXPECT_THROW(compiler->load(bytes), Unsupported) << bytes.size();
}

TEST(ClangCompiler, LoadsFromAnyAddress) {
  HC_GET_COMPILER(compiler);
  const std::string shifted = "x" + compiler->compile({.text = kLoop});
  EXPECT_NE(compiler->load(std::string_view(shifted).substr(1))->symbol("run"), nullptr);
}

TEST(ClangCompiler, KernelsOfOneNameAreApart) {
  HC_GET_COMPILER(compiler);
  const auto one = compiler->load(compiler->compile({.text = "int state = 1; extern \"C\" int run() { return state++; }"}));
  const auto two = compiler->load(compiler->compile({.text = "int state = 10; extern \"C\" int run() { return state++; }"}));
  EXPECT_EQ(function<int()>(*one, "run")(), 1);
  EXPECT_EQ(function<int()>(*two, "run")(), 10);
  EXPECT_EQ(function<int()>(*one, "run")(), 2);
}

TEST(ClangCompiler, IdentityNamesCompilerTargetAndFlags) {
  HC_GET_COMPILER(compiler);
  for (const char* part : {"clang version 19", "-triple", "-target-cpu", "-target-feature", "-ffp-contract=off"})
    EXPECT_NE(compiler->identity().find(part), std::string::npos) << part << " in " << compiler->identity();
}

// Contracted, a * b + c of these is 2^-46; rounded after each step it is 0.
TEST(ClangCompiler, DoesNotContract) {
  HC_GET_COMPILER(compiler);
  const std::string_view text =
      "extern \"C\" void run(const float* a, const float* b, const float* c, float* out, long n) {\n"
      "  for (long i = 0; i < n; ++i) out[i] = a[i] * b[i] + c[i];\n}\n";
  const auto kernel = compiler->load(compiler->compile({.text = text}));
  const float near_one = 1.f + std::ldexp(1.f, -23);
  const std::vector<float> a(64, near_one), c(64, -(near_one * near_one));
  std::vector<float> out(64, 1.f);
  function<void(const float*, const float*, const float*, float*, long)>(*kernel, "run")(a.data(), a.data(), c.data(), out.data(), 64);
  for (const float value : out) ASSERT_EQ(value, 0.f);
}

TEST(ClangCompiler, KeepsNaNInfinityAndNegativeZero) {
  HC_GET_COMPILER(compiler);
  const std::string_view text =
      "extern \"C\" void run(const float* in, float* out, long n) { for (long i = 0; i < n; ++i) out[i] = in[i] + 0.f; }";
  const auto kernel = compiler->load(compiler->compile({.text = text}));
  const float infinity = std::numeric_limits<float>::infinity();
  const std::array<float, 4> in = {-0.f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
  std::array<float, 4> out = {};
  function<Loop>(*kernel, "run")(in.data(), out.data(), 4);
  EXPECT_FALSE(std::signbit(out[0])) << "-0 + 0 is 0: adding 0 is not the identity";
  EXPECT_EQ(out[1], infinity);
  EXPECT_EQ(out[2], -infinity);
  EXPECT_TRUE(std::isnan(out[3]));
}

// -Wpass-failed warns of a loop that should have been vectorised and was not; as an error it fails the compile.
TEST(ClangCompiler, VectorisesLoops) {
  HC_GET_COMPILER(compiler);
  const auto with_loop = [](std::string_view body) {
    return "#pragma clang diagnostic error \"-Wpass-failed\"\n"
           "extern \"C\" void run(const float* __restrict in, float* __restrict out, long n) {\n"
           "#pragma clang loop vectorize(enable)\n"
           "  for (long i = 0; i < n; ++i) " +
           std::string(body) + "\n}\n";
  };
  EXPECT_EQ(diagnostics_of(*compiler, with_loop("out[i] = in[i] * 2.f + 1.f;")), "");
  EXPECT_NE(diagnostics_of(*compiler, with_loop("{ if (in[i] > 3.f) break; out[i] = out[i] + in[i]; }")), "")
      << "the complaint that the line above does without is not made at all";
}

}  // namespace
}  // namespace hindcast::codegen::cpu
