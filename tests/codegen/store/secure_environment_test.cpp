// A program with more rights than its caller keeps no kernels where the caller's environment says.

#include "codegen/store/store_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace {
bool has_more_rights = false;
}  // namespace

// Replaces the C library's function, which asks how the process was started.
extern "C" char* secure_getenv(const char* name) noexcept { return has_more_rights ? nullptr : std::getenv(name); }

namespace hindcast::codegen::store {
namespace {

TEST(SecureEnvironment, NamesNoFolderOfKernels) {
  const std::string folder = default_store_folder();
  EXPECT_NE(folder, "") << "neither HINDCAST_CACHE_DIR nor HOME is set";
  has_more_rights = true;
  EXPECT_EQ(default_store_folder(), "");
  has_more_rights = false;
  EXPECT_EQ(default_store_folder(), folder);
}

}  // namespace
}  // namespace hindcast::codegen::store
