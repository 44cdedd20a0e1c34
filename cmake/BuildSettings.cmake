# Compiler settings that hold for every target of the tree.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is GCC ${CMAKE_CXX_COMPILER_VERSION}; expected 12 or newer, for C++20. "
                      "Install one (apt-get install g++-12) and name it: CXX=g++-12 make ...")
endif()

# Two warnings are wrong more often than right here: an initialiser that names its members leaves the others at their
# defaults on purpose, and GCC 12 sees uninitialised values in LibTorch's small vectors once they are inlined into our code.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-maybe-uninitialized)
endif()

# ccache needs to be told that a precompiled header's macros and time stamps may be trusted, else it never hits.
find_program(HINDCAST_CCACHE_PROGRAM ccache)
if(HINDCAST_CCACHE AND HINDCAST_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
    "${HINDCAST_CCACHE_PROGRAM}")
endif()

set(HINDCAST_SANITIZER "" CACHE STRING "empty, address (with undefined behaviour) or thread")
set_property(CACHE HINDCAST_SANITIZER PROPERTY STRINGS "" address thread)
if(HINDCAST_SANITIZER STREQUAL "address")
  set(_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined)
  # LibTorch hides the type information of some of its classes, which the vptr check needs.
  list(APPEND _sanitizers -fno-sanitize=vptr)
elseif(HINDCAST_SANITIZER STREQUAL "thread")
  set(_sanitizers -fsanitize=thread)
elseif(HINDCAST_SANITIZER)
  message(FATAL_ERROR "HINDCAST_SANITIZER is '${HINDCAST_SANITIZER}'; expected empty, address or thread.")
endif()
if(HINDCAST_SANITIZER)
  add_compile_options(${_sanitizers})
  add_link_options(${_sanitizers})
endif()
