# Finds the C++ part of PyTorch (LibTorch) and defines hindcast::libtorch: its headers, libtorch_cpu and libc10. 2.11 is what
# hindcast is built for, 2.12 to 2.15 are taken too where somebody names one; find_package(LibTorch 2.12) takes only 2.12.
#
# LibTorch's own package files also pull in the CUDA toolkit, which hindcast's CPU part does not need, so they are not used.
# Looked at, in this order; the first that is set decides, and a wrong one is an error rather than skipped:
#   Torch_DIR   (CMake or environment)  LibTorch's root folder, or its share/cmake/Torch
#   LIBTORCH    (CMake or environment)  the same
#   LibTorch_HINTS                      folders tried in turn; set by whoever calls find_package
# Sets LibTorch_FOUND, LibTorch_VERSION and LibTorch_ROOT_DIR.

# Those that capture/recorder/libtorch_compat.h compiles against; `make check-torch-versions` tests with each.
set(LibTorch_KNOWN_VERSIONS 2.11 2.12 2.13 2.14 2.15)
if(LibTorch_FIND_VERSION)
  set(LibTorch_WANTED_VERSION "${LibTorch_FIND_VERSION_MAJOR}.${LibTorch_FIND_VERSION_MINOR}")
  set(_libtorch_taken "${LibTorch_WANTED_VERSION}")
  set(_libtorch_expected "${LibTorch_WANTED_VERSION}.x")
else()
  set(LibTorch_WANTED_VERSION 2.11)
  set(_libtorch_taken ${LibTorch_KNOWN_VERSIONS})
  set(_libtorch_expected "2.11.x, or one of 2.12 to 2.15")
endif()

# A root folder holds include/ATen and lib/. share/cmake/Torch lies three folders below it, and the Python package's
# parent (site-packages) one above.
function(_libtorch_root_of folder out)
  foreach(candidate "${folder}" "${folder}/torch" "${folder}/../../..")
    if(EXISTS "${candidate}/include/ATen/ATen.h")
      get_filename_component(candidate "${candidate}" REALPATH)
      set(${out} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${out} "" PARENT_SCOPE)
endfunction()

function(_libtorch_version_of root out)
  set(${out} "unknown" PARENT_SCOPE)
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${root}/include/${header}")
      file(STRINGS "${root}/include/${header}" lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
      list(LENGTH numbers count)
      if(count EQUAL 3)
        list(JOIN numbers "." version)
        set(${out} "${version}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

set(LibTorch_ROOT_DIR "")
set(_libtorch_problem "")
foreach(_libtorch_name Torch_DIR LIBTORCH)
  if(${_libtorch_name} AND NOT ${_libtorch_name} MATCHES "NOTFOUND$")
    set(_libtorch_given "${${_libtorch_name}}")
  elseif(NOT "$ENV{${_libtorch_name}}" STREQUAL "")
    set(_libtorch_given "$ENV{${_libtorch_name}}")
  else()
    continue()
  endif()
  _libtorch_root_of("${_libtorch_given}" LibTorch_ROOT_DIR)
  if(NOT LibTorch_ROOT_DIR)
    set(_libtorch_problem "${_libtorch_name} is '${_libtorch_given}', where no include/ATen/ATen.h was found. \
Expected LibTorch's root folder (the one with include/ and lib/) or its share/cmake/Torch.")
  endif()
  set(_libtorch_source "${_libtorch_name}")
  break()
endforeach()

if(NOT LibTorch_ROOT_DIR AND NOT _libtorch_problem)
  set(_libtorch_source "the hints of find_package")
  foreach(_libtorch_hint IN LISTS LibTorch_HINTS)
    _libtorch_root_of("${_libtorch_hint}" LibTorch_ROOT_DIR)
    if(LibTorch_ROOT_DIR)
      break()
    endif()
  endforeach()
  if(NOT LibTorch_ROOT_DIR)
    set(_libtorch_problem "LibTorch ${LibTorch_WANTED_VERSION} was not found. Run scripts/setup.sh in hindcast's source \
folder, which installs it there, or set LIBTORCH to the folder of a LibTorch ${LibTorch_WANTED_VERSION}.")
  endif()
endif()

if(LibTorch_ROOT_DIR)
  _libtorch_version_of("${LibTorch_ROOT_DIR}" LibTorch_VERSION)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" _libtorch_minor "${LibTorch_VERSION}")
  if(NOT _libtorch_minor IN_LIST _libtorch_taken)
    set(_libtorch_problem "${LibTorch_ROOT_DIR} (from ${_libtorch_source}) holds LibTorch ${LibTorch_VERSION}; expected \
${_libtorch_expected}, since hindcast uses parts of autograd that change from version to version.")
  endif()
  foreach(_libtorch_library torch_cpu c10)
    set(_libtorch_file "${LibTorch_ROOT_DIR}/lib/lib${_libtorch_library}.so")
    if(NOT _libtorch_problem AND NOT EXISTS "${_libtorch_file}")
      set(_libtorch_problem "${_libtorch_file} is missing; LibTorch's shared build is needed, not its static one. \
If the installation was interrupted, run scripts/setup.sh again.")
    endif()
  endforeach()
endif()

if(_libtorch_problem)
  set(LibTorch_FOUND FALSE)
  if(LibTorch_FIND_REQUIRED)
    message(FATAL_ERROR "${_libtorch_problem}")
  elseif(NOT LibTorch_FIND_QUIETLY)
    message(STATUS "${_libtorch_problem}")
  endif()
  return()
endif()

set(LibTorch_FOUND TRUE)
if(NOT LibTorch_FIND_QUIETLY)
  message(STATUS "LibTorch ${LibTorch_VERSION}: ${LibTorch_ROOT_DIR}")
endif()

if(NOT TARGET hindcast::libtorch)
  add_library(hindcast::libtorch_c10 SHARED IMPORTED)
  set_target_properties(hindcast::libtorch_c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libc10.so")
  add_library(hindcast::libtorch_cpu SHARED IMPORTED)
  set_target_properties(hindcast::libtorch_cpu PROPERTIES IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libtorch_cpu.so")

  add_library(hindcast::libtorch INTERFACE IMPORTED)
  target_include_directories(hindcast::libtorch SYSTEM INTERFACE
    "${LibTorch_ROOT_DIR}/include" "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include")
  target_compile_definitions(hindcast::libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  target_link_libraries(hindcast::libtorch INTERFACE hindcast::libtorch_cpu hindcast::libtorch_c10)
  # The CUDA build of libtorch_cpu needs libcupti and libcudart, which lie in wheels of their own beside it. At run time its
  # own rpath finds them; the linker has to be told.
  file(GLOB _libtorch_beside LIST_DIRECTORIES true "${LibTorch_ROOT_DIR}/../nvidia/cu*/lib")
  foreach(_libtorch_folder "${LibTorch_ROOT_DIR}/lib" ${_libtorch_beside})
    target_link_options(hindcast::libtorch INTERFACE "LINKER:-rpath-link,${_libtorch_folder}")
  endforeach()
endif()
