# C++ written at build time from LibTorch's generated/Functions.h, which declares every autograd node class of derivatives.yaml.

find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
set(HINDCAST_FUNCTIONS_HEADER "${LibTorch_ROOT_DIR}/include/torch/csrc/autograd/generated/Functions.h")

# hindcast_generate(STAMP <file> FILES <files>... ARGUMENTS <of scripts/generate_collectors.py>...)
# The script leaves a file alone whose text would not change, so `make` is told by a stamp that it ran.
function(hindcast_generate)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "STAMP" "FILES;ARGUMENTS")
  set(generator "${PROJECT_SOURCE_DIR}/scripts/generate_collectors.py")
  get_filename_component(folder "${arg_STAMP}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(
    OUTPUT "${arg_STAMP}"
    BYPRODUCTS ${arg_FILES}
    COMMAND Python3::Interpreter "${generator}" ${arg_ARGUMENTS}
    COMMAND "${CMAKE_COMMAND}" -E touch "${arg_STAMP}"
    DEPENDS "${generator}" "${HINDCAST_FUNCTIONS_HEADER}"
    COMMENT "Reading the node classes of LibTorch ${LibTorch_VERSION}"
    VERBATIM)
endfunction()
