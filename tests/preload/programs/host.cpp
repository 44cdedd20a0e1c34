// A program without LibTorch that opens a plug-in with it, with local symbols: host <plug-in>.

#include <dlfcn.h>

#include <cstdio>

int main(int, char** arguments) {
  void* const plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  const auto train = reinterpret_cast<int (*)()>(dlsym(plugin, "train"));
  const bool is_right = train() != 0 && train() != 0;
  dlclose(plugin);
  return is_right ? 0 : 1;
}
