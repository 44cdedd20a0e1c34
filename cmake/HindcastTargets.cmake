# The kinds of target in the tree: a precompiled header, a folder of the library, and a program.

include(TorchUse)

# An object library that exists to own one precompiled header; the others reuse it. GCC 12 crashes on a precompiled header
# that was made with other flags, so all that use one are compiled with the very same: hence one function per kind.
function(hindcast_precompiled_header name header kind)
  add_library(${name} OBJECT "${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp")
  cmake_language(CALL hindcast_${kind}_flags ${name})
  target_link_libraries(${name} PRIVATE hindcast::libtorch)
  target_precompile_headers(${name} PRIVATE "${header}")
endfunction()

function(hindcast_library_flags name)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include")
  set_target_properties(${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # Besides its files, each unit costs seconds of CPU: it loads the precompiled header and instantiates the templates that all files use.
  # Units of programs stay smaller: their files take GCC longer, and change more often.
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  # Messages name source files from the root of the tree, on whatever machine it was built.
  target_compile_options(${name} PRIVATE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=" "-fmacro-prefix-map=../../=")
endfunction()

function(hindcast_program_flags name)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include")
  # LibTorch's folder holds fmt's headers too, of another version than the system's library: with these, header-only.
  target_compile_definitions(${name} PRIVATE FMT_HEADER_ONLY)
  # What is tested and measured is in the library, at -O2; a file of tests takes GCC half as long again at -O2 as at -O1.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  # For GoogleTest's macros, which the precompiled header was made with. An object library links nothing.
  target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock)
endfunction()

# hindcast_folder(<target> [TORCH] [EXCLUDE <regex>] [LINK <targets>...] [SOURCES <generated files>...])
# All *.cpp of the calling folder as one object library, but those that EXCLUDE matches. Without TORCH the folder cannot see LibTorch's headers.
function(hindcast_folder name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "EXCLUDE" "LINK;SOURCES")
  file(GLOB sources CONFIGURE_DEPENDS "*.cpp")
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  if(NOT sources)
    return()
  endif()
  add_library(${name} OBJECT ${sources} ${arg_SOURCES})
  hindcast_library_flags(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK})
  if(arg_TORCH)
    target_link_libraries(${name} PRIVATE hindcast::libtorch)
    target_precompile_headers(${name} REUSE_FROM hindcast_precompiled)
    hindcast_split_by_torch_use("${sources}" none some all)
    hindcast_without_precompiled_header("${none}")
  endif()
  set_property(GLOBAL APPEND PROPERTY HINDCAST_FOLDERS ${name})
endfunction()

# hindcast_program(<name> SOURCES <files>... [LINK <targets>...] [DEFINE <macros>...] [OPTIONS <flags>...])
# A program of the tree: a test, an example or the benchmarks.
function(hindcast_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK;DEFINE;OPTIONS")
  hindcast_program_objects(${name} objects SOURCES ${arg_SOURCES} LINK ${arg_LINK} DEFINE ${arg_DEFINE} OPTIONS ${arg_OPTIONS})
  add_executable(${name} ${objects})
  target_link_libraries(${name} PRIVATE ${arg_LINK} hindcast::libtorch)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

# Compiles a program's files, each with the smallest precompiled header that covers what it includes: the one with torch::nn
# costs a file 6 seconds more than the one without, since GCC instantiates the modules' templates for each file anew. Sets `out` to the objects.
function(hindcast_program_objects name out)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LINK;DEFINE;OPTIONS")
  hindcast_split_by_torch_use("${arg_SOURCES}" none some all)
  hindcast_without_precompiled_header("${none}")
  list(PREPEND some ${none})
  set(objects)
  foreach(part some all)
    if(${part})
      set(target ${name}_with_${part}_of_torch)
      add_library(${target} OBJECT ${${part}})
      hindcast_program_flags(${target})
      target_compile_definitions(${target} PRIVATE HINDCAST_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
        HINDCAST_TORCH_INCLUDE_DIR="${LibTorch_ROOT_DIR}/include" ${arg_DEFINE})
      target_compile_options(${target} PRIVATE ${arg_OPTIONS})
      target_link_libraries(${target} PRIVATE ${arg_LINK} hindcast::libtorch)
      if(NOT arg_OPTIONS)  # GCC 12 crashes on a precompiled header that was made with other flags
        target_precompile_headers(${target} REUSE_FROM programs_precompiled_${part})
      endif()
      list(APPEND objects $<TARGET_OBJECTS:${target}>)
    endif()
  endforeach()
  set(${out} "${objects}" PARENT_SCOPE)
endfunction()
