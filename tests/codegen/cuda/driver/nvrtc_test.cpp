// NVRTC is found where LibTorch's packages have it, or an error says why not; what it refuses is an exception with its log.

#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel/device_library.h"
#include "tests/support/machine_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace hindcast::tests {
namespace {

namespace fs = std::filesystem;
using codegen::cuda::kernel_options;
using codegen::cuda::Nvrtc;
using codegen::cuda::NvrtcError;
using testing::HasSubstr;

const std::string kEmpty = "extern \"C\" __global__ void empty() {}\n";

std::string reason_for(const std::vector<std::string>& paths) {
  std::string why_not;
  EXPECT_EQ(Nvrtc::open(paths, &why_not), nullptr);
  EXPECT_EQ(Nvrtc::open(paths, nullptr), nullptr);
  return why_not;
}

// The only test that fails if NVRTC is installed and not found: the others are skipped.
TEST(Nvrtc, IsFoundBesideLibTorch) {
  const fs::path library = fs::path(HINDCAST_TORCH_INCLUDE_DIR).parent_path().parent_path() / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13";
  if (!fs::exists(library)) GTEST_SKIP() << library << " is not there";
  if (std::getenv("HINDCAST_NVRTC") != nullptr) GTEST_SKIP() << "HINDCAST_NVRTC names another";
  std::string why_not;
  ASSERT_NE(Nvrtc::get(&why_not), nullptr) << why_not;
  std::ifstream maps("/proc/self/maps");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(maps), {}), HasSubstr(fs::canonical(library).string()));
}

TEST(Nvrtc, SaysWhereItWasLookedForAndHowToGetIt) {
  const std::string why_not = reason_for({"/nonexistent/first.so", "/nonexistent/second.so"});
  for (const char* part : {"/nonexistent/first.so", "/nonexistent/second.so", "nvidia-cuda-nvrtc", "HINDCAST_NVRTC"})
    EXPECT_THAT(why_not, HasSubstr(part));
}

TEST(Nvrtc, ALibraryOfAnotherKindIsNone) {
  EXPECT_THAT(reason_for({"libm.so.6"}), HasSubstr("libm.so.6 has no nvrtcGetNumSupportedArchs"));
}

// In a separate process, since get() looks only once per process.
TEST(Nvrtc, TheEnvironmentNamesTheOnlyPlace) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("HINDCAST_NVRTC", "/nonexistent/libnvrtc.so", 1);
    execl("/proc/self/exe", "test_cuda_driver", "--gtest_also_run_disabled_tests", "--gtest_filter=Nvrtc.DISABLED_InTheChild", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Nvrtc, DISABLED_InTheChild) {
  std::string why_not, again;
  EXPECT_EQ(Nvrtc::get(&why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("(/nonexistent/libnvrtc.so: "));
  EXPECT_EQ(Nvrtc::get(&again), nullptr);
  EXPECT_EQ(why_not, again);
  EXPECT_EQ(Nvrtc::get(nullptr), nullptr);
}

TEST(Nvrtc, ItsIdentityTellsBuildsApart) {
  HC_GET_NVRTC(nvrtc);
  EXPECT_THAT(nvrtc->identity(), testing::MatchesRegex("NVRTC release [0-9]+\\.[0-9]+, V[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(Nvrtc, KnowsItsArchitectures) {
  HC_GET_NVRTC(nvrtc);
  EXPECT_THAT(nvrtc->architectures(), testing::IsSupersetOf(kArchitectures));
  EXPECT_TRUE(std::is_sorted(nvrtc->architectures().begin(), nvrtc->architectures().end()));
}

TEST(Nvrtc, ARefusalHoldsTheLogTheOptionsAndTheCompiler) {
  HC_GET_NVRTC(nvrtc);
  try {
    nvrtc->compile("extern \"C\" __global__ void k() { nonsense(); }\n", {}, kernel_options(90));
    FAIL() << "no exception";
  } catch (const NvrtcError& error) {
    EXPECT_THAT(error.log(), HasSubstr("kernel.cu(1): error: identifier \"nonsense\" is undefined"));
    for (const std::string& part :
         {error.log(), nvrtc->identity(), std::string("NVRTC_ERROR_COMPILATION"), std::string("sm_90"), std::string("--fmad=false")})
      EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Nvrtc, AnOptionThatItDoesNotKnowIsNamed) {
  HC_GET_NVRTC(nvrtc);
  const std::vector<std::string> options = {"--gpu-architecture=sm_90", "--no-such-option"};
  try {
    nvrtc->compile(kEmpty, {}, options);
    FAIL() << "no exception";
  } catch (const NvrtcError& error) {
    EXPECT_THAT(error.log(), HasSubstr("--no-such-option"));
  }
}

TEST(Nvrtc, ReadsTheHeadersThatItIsGivenAndNoOthers) {
  HC_GET_NVRTC(nvrtc);
  const std::vector<codegen::DeviceHeader> headers = {{"folder/one.h", "#include \"folder/two.h\"\n"},
                                                      {"folder/two.h", "struct Two { int value; };\n"}};
  const std::string text = "#include \"folder/one.h\"\nextern \"C\" __global__ void k(Two* two) { two->value = 2; }\n";
  EXPECT_GT(nvrtc->compile(text, headers, kernel_options(90)).object.size(), 0U);
  EXPECT_THROW(nvrtc->compile(text, {}, kernel_options(90)), NvrtcError);
}

TEST(Nvrtc, TheLogSaysWhatAKernelTakes) {
  HC_GET_NVRTC(nvrtc);
  const auto uses = uses_in(nvrtc->compile(kEmpty, {}, kernel_options(90)).log);
  ASSERT_TRUE(uses.contains("empty"));
  EXPECT_GT(uses.at("empty").registers, 0);
}

TEST(Nvrtc, ProductsAreRoundedBeforeTheyAreAdded) {
  HC_GET_NVRTC(nvrtc);
  if (disassembler(&why_not).empty()) GTEST_SKIP() << why_not;
  const std::string text = "extern \"C\" __global__ void k(float* x) { x[0] = x[1] * x[2] + x[3]; }\n";
  const auto instructions = [&](const std::vector<std::string>& options) { return disassembled(nvrtc->compile(text, {}, options).object); };
  EXPECT_THAT(instructions({"--gpu-architecture=sm_90"}), HasSubstr("FFMA"));
  EXPECT_THAT(instructions(kernel_options(90)), testing::AllOf(HasSubstr("FMUL"), HasSubstr("FADD"), testing::Not(HasSubstr("FFMA"))));
}

// Integer arithmetic would take some 20 instructions per number, more than fit in the card's memory time.
TEST(Nvrtc, HalvesAreConvertedByInstructionsOfTheCard) {
  HC_GET_NVRTC(nvrtc);
  if (disassembler(&why_not).empty()) GTEST_SKIP() << why_not;
  std::string text = "#include \"codegen/device/types.h\"\nusing namespace hindcast::device;\n";
  for (const std::string type : {"float16", "bfloat16"})
    text += "extern \"C\" __global__ void of_" + type + "(" + type + "* x) { x[0] = convert<" + type + ">(widen(x[1]) * 3.0f); }\n";
  for (const int architecture : kArchitectures) {
    auto code = kernels_in(disassembled(nvrtc->compile(text, codegen::device_library(), kernel_options(architecture)).object));
    for (const std::string kernel : {"of_float16", "of_bfloat16"}) {
      EXPECT_THAT(code[kernel], testing::AllOf(HasSubstr("F2FP"), testing::Not(HasSubstr("LOP3")), testing::Not(HasSubstr("ISETP"))))
          << kernel << ", sm_" << architecture;
    }
  }
}

}  // namespace
}  // namespace hindcast::tests
