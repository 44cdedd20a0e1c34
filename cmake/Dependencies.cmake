# What hindcast is built from. scripts/setup.sh installs all of it; each is looked for only where something needs it.

file(GLOB LibTorch_HINTS LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch")
if(SKBUILD)  # pip makes a wheel: with the torch that its Python has
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c
    "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_of_python OUTPUT_STRIP_TRAILING_WHITESPACE)
  # Nor another that the environment names: the wheel says that it needs this one.
  set(Torch_DIR "${torch_of_python}")
endif()
find_package(LibTorch REQUIRED)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" hindcast_torch_release "${LibTorch_VERSION}")

macro(hindcast_find package apt_name)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} was not found. Run scripts/setup.sh, or: apt-get install ${apt_name}")
  endif()
endmacro()

hindcast_find(fmt libfmt-dev)
hindcast_find(spdlog libspdlog-dev)
find_package(Threads REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT XXHASH_INCLUDE_DIR)
  message(FATAL_ERROR "xxhash was not found. Run scripts/setup.sh, or: apt-get install libxxhash-dev")
endif()
find_path(BOOST_GRAPH_INCLUDE_DIR boost/graph/boykov_kolmogorov_max_flow.hpp)
if(NOT BOOST_GRAPH_INCLUDE_DIR)
  message(FATAL_ERROR "Boost.Graph was not found. Run scripts/setup.sh, or: apt-get install libboost-dev")
endif()

# Of all four the headers only: what is built then needs none of their libraries where it runs, as a wheel must not.
get_target_property(spdlog_includes spdlog::spdlog_header_only INTERFACE_INCLUDE_DIRECTORIES)
add_library(hindcast_logging INTERFACE)
target_include_directories(hindcast_logging SYSTEM INTERFACE ${spdlog_includes})
target_compile_definitions(hindcast_logging INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(hindcast_logging INTERFACE fmt::fmt-header-only Threads::Threads)
add_library(hindcast_hashing INTERFACE)
target_include_directories(hindcast_hashing SYSTEM INTERFACE "${XXHASH_INCLUDE_DIR}")
target_compile_definitions(hindcast_hashing INTERFACE XXH_INLINE_ALL)
add_library(hindcast_graph_algorithms INTERFACE)
target_include_directories(hindcast_graph_algorithms SYSTEM INTERFACE "${BOOST_GRAPH_INCLUDE_DIR}")

hindcast_find(nlohmann_json nlohmann-json3-dev)

if(HINDCAST_BENCH)
  hindcast_find(benchmark libbenchmark-dev)
endif()
# The programs of the tree share their precompiled headers, so all need GoogleTest's.
if(HINDCAST_EXAMPLES OR HINDCAST_BENCH OR HINDCAST_TESTS)
  hindcast_find(GTest "libgtest-dev libgmock-dev")
  hindcast_find(CLI11 libcli11-dev)
endif()
