# Looks for Clang 19's and LLVM 19's static libraries, for the compiler of CPU kernels (codegen/cpu/clang). Without them hindcast
# is built all the same, and works without that compiler; HINDCAST_CLANG=ON makes their absence an error.
#
# Sets HINDCAST_CLANG_FOUND, and defines hindcast::embedded_clang: the headers, and what the plug-in links. The packages' own
# CMake files are not used: they fail unless every program of LLVM is installed with the libraries.

set(HINDCAST_CLANG AUTO CACHE STRING "Build the compiler for CPU kernels: ON, OFF, or AUTO for where Clang 19 is installed")
set_property(CACHE HINDCAST_CLANG PROPERTY STRINGS AUTO ON OFF)
find_program(HINDCAST_LLVM_CONFIG NAMES llvm-config-19 llvm-config DOC "llvm-config of LLVM 19")

function(_llvm_config out)
  execute_process(COMMAND "${HINDCAST_LLVM_CONFIG}" ${ARGN}
    OUTPUT_VARIABLE answer ERROR_VARIABLE ignored OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${out} "${answer}" PARENT_SCOPE)
endfunction()

# Sets `problem` where something is missing.
function(_find_embedded_clang problem)
  set(${problem} "llvm-config-19 was not found" PARENT_SCOPE)
  if(NOT HINDCAST_LLVM_CONFIG)
    return()
  endif()
  _llvm_config(version --version)
  if(NOT version MATCHES "^19\\.")
    set(${problem} "${HINDCAST_LLVM_CONFIG} is of LLVM ${version}, expected 19" PARENT_SCOPE)
    return()
  endif()
  _llvm_config(headers --includedir)
  _llvm_config(folder --libdir)
  foreach(file "${headers}/clang/Frontend/CompilerInstance.h" "${folder}/libclangFrontend.a" "${folder}/libLLVMJITLink.a")
    if(NOT EXISTS "${file}")
      set(${problem} "${file} is missing" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  set(libraries)
  foreach(part Frontend Driver Parse Serialization CodeGen Sema APINotes Analysis ASTMatchers Support Edit AST Lex Basic)
    list(APPEND libraries "${folder}/libclang${part}.a")
  endforeach()
  # The linker, the host's code generator, and what Clang's own code generator refers to.
  _llvm_config(names --link-static --libnames jitlink native passes coroutines coverage ipo lto hipstdpar
    frontenddriver frontendhlsl frontendoffloading frontendopenmp)
  string(REPLACE " " ";" names "${names}")
  foreach(name IN LISTS names)
    if(EXISTS "${folder}/${name}")  # Polly is named where it lies in a package of its own; see Extension.def in plugin.cpp
      list(APPEND libraries "${folder}/${name}")
    endif()
  endforeach()

  add_library(hindcast::embedded_clang INTERFACE IMPORTED GLOBAL)
  target_include_directories(hindcast::embedded_clang SYSTEM INTERFACE "${headers}")
  target_compile_definitions(hindcast::embedded_clang INTERFACE
    __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS __STDC_LIMIT_MACROS)
  target_link_libraries(hindcast::embedded_clang INTERFACE
    -Wl,--start-group ${libraries} -Wl,--end-group ${CMAKE_DL_LIBS})
  set(${problem} "" PARENT_SCOPE)
  set(HINDCAST_CLANG_VERSION "${version}" PARENT_SCOPE)
endfunction()

set(HINDCAST_CLANG_FOUND FALSE)
if(NOT HINDCAST_CLANG)
  message(STATUS "Compiler for CPU kernels: off, by HINDCAST_CLANG")
else()
  _find_embedded_clang(_clang_problem)
  if(NOT _clang_problem)
    set(HINDCAST_CLANG_FOUND TRUE)
    message(STATUS "Compiler for CPU kernels: Clang ${HINDCAST_CLANG_VERSION}")
  else()
    set(_clang_advice "${_clang_problem}. Run scripts/setup.sh, or: apt-get install libclang-19-dev llvm-19-dev")
    if(HINDCAST_CLANG STREQUAL "AUTO")
      message(STATUS "Compiler for CPU kernels: none, ${_clang_advice}")
    else()
      message(FATAL_ERROR "HINDCAST_CLANG is ${HINDCAST_CLANG}, but ${_clang_advice}")
    endif()
  endif()
endif()
