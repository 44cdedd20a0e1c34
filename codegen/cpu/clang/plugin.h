#pragma once
// The interface between libhindcast_clang.so and hindcast: a table of C functions over plain data, so that the two may be built by
// different compilers with different flags, and neither sees the other's C++ types or exceptions.
//
// Any change here, or of what a function does with its arguments, requires a new kHindcastClangVersion.

#include <stddef.h>
#include <stdint.h>

extern "C" {

enum { kHindcastClangVersion = 3 };

typedef struct HindcastClangText {
  const char* data;
  size_t size;
} HindcastClangText;

/// A file that `#include "name"` finds. No other includes are found: the file system is not searched.
typedef struct HindcastClangFile {
  HindcastClangText name;
  HindcastClangText text;
} HindcastClangFile;

typedef struct HindcastClangSource {
  HindcastClangText text;
  const HindcastClangFile* files;
  size_t file_count;
  uint32_t optimisation;  // 0 to 3
  /// Includes that `text` may have, and their bytes from precompile() with the same files and options, so that a compile does not parse
  /// them. Both may be empty.
  HindcastClangText prelude;
  HindcastClangText precompiled;
} HindcastClangSource;

/// Receives a result: called once, before the function that it was passed to returns.
typedef struct HindcastClangSink {
  void (*write)(void* context, const char* data, size_t size);
  void* context;
} HindcastClangSink;

/// Every function may be called on any thread at any time. Those that return an int return 1 for success; otherwise `problem` has received
/// the reason.
typedef struct HindcastClangTable {
  uint32_t version;  // first in all versions

  /// Everything that an object's bytes depend on besides the source and its options: compiler, target, CPU, flags. Never freed.
  const char* (*identity)(void);

  /// Compiles C++ to the bytes of an object file for this machine.
  int (*compile)(const HindcastClangSource* source, HindcastClangSink object, HindcastClangSink problem);

  /// Makes a precompiled header of `prelude`: the bytes that a compile takes as `precompiled`.
  int (*precompile)(const HindcastClangSource* source, HindcastClangSink precompiled, HindcastClangSink problem);

  /// Makes an object's functions callable. They may call libm, and memcpy, memmove, memset and memcmp.
  int (*load)(HindcastClangText object, void** loaded, HindcastClangSink problem);

  /// The address of an `extern "C"` function or variable; NULL if no symbol has that name.
  void* (*find)(const void* loaded, const char* name);

  /// Frees the code, which must not be running or be called again.
  void (*unload)(void* loaded);
} HindcastClangTable;

/// The function that the shared object exports under the name below.
typedef const HindcastClangTable* (*HindcastClangEntry)(void);
#define HINDCAST_CLANG_ENTRY "hindcast_clang_table"

}  // extern "C"
