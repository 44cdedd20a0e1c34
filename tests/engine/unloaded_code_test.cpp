// A library is unloaded, and another version is loaded at the same address: captures of the former one's Functions and hooks are not found
// again.

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "base/unloads.h"
#include "engine/cache/captures.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests::unloaded_code_test {
namespace {

namespace fs = std::filesystem;

class Plugin {
 public:
  explicit Plugin(int factor) {
    const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
    library_ = dlopen((folder / ("libplugin_" + std::to_string(factor) + ".so")).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
  }
  ~Plugin() { dlclose(library_); }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const void* place() const { return dlsym(library_, "plugin_times"); }
  at::Tensor times(const at::Tensor& x) const {
    at::Tensor y;
    reinterpret_cast<void (*)(const at::Tensor*, at::Tensor*)>(dlsym(library_, "plugin_times"))(&x, &y);
    return y;
  }
  void hook(const at::Tensor& y) const { reinterpret_cast<void (*)(const at::Tensor*)>(dlsym(library_, "plugin_hook"))(&y); }

 private:
  void* library_;
};

float gradient_of_a_function(const Plugin& plugin) {
  const auto x = at::ones({3}).set_requires_grad(true);
  plugin.times(x).sum().backward();
  return x.grad()[0].item<float>();
}

float gradient_of_a_hook(const Plugin& plugin) {
  const auto x = at::ones({3}).set_requires_grad(true);
  const auto y = x * 1;
  plugin.hook(y);
  y.sum().backward();
  return x.grad()[0].item<float>();
}

TEST(UnloadedCode, IsNotFoundAgain) {
  hindcast::reset();
  const auto guard = hindcast::enable();
  const void* place = nullptr;
  bool is_same_place = false;
  for (const int factor : {2, 3, 2}) {
    const Plugin plugin(factor);
    is_same_place = is_same_place || plugin.place() == place;
    place = plugin.place();
    const uint64_t hits = hindcast::stats().hits;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(gradient_of_a_function(plugin), static_cast<float>(factor));
      EXPECT_EQ(gradient_of_a_hook(plugin), static_cast<float>(factor));
    }
    EXPECT_EQ(hindcast::stats().hits, hits + 4);
  }
  EXPECT_EQ(engine::captured_graphs().size(), 2U) << "those of the last one";
  if (!is_same_place) GTEST_SKIP() << "the loader put no version where another one was";
}

TEST(UnloadedCode, IsCounted) {
  const uint64_t before = base::unload_count();
  { const Plugin plugin(2); }
  EXPECT_EQ(base::unload_count(), before + 1);
}

TEST(UnloadedCode, OfTheProgramStays) {
  EXPECT_TRUE(base::stays_loaded(&typeid(Plugin)));
  const Plugin plugin(2);
  EXPECT_FALSE(base::stays_loaded(plugin.place()));
}

// Captures of LibTorch's nodes and of the program's own Functions stay.
TEST(UnloadedCode, LeavesOthersWhereTheyAre) {
  hindcast::reset();
  const auto guard = hindcast::enable();
  for (int i = 0; i < 3; ++i) {
    const auto x = at::ones({3}).set_requires_grad(true);
    x.sin().sum().backward();
    const Plugin plugin(2);
  }
  EXPECT_EQ(hindcast::stats().hits, 2U);
}

}  // namespace
}  // namespace hindcast::tests::unloaded_code_test
