# The test `find_libtorch`: the messages of cmake/FindLibTorch.cmake about right and wrong folders. Each case configures the project next to
# this file, which has no language, so none takes long. Expects source_folder, work_folder and libtorch (a right one).

cmake_minimum_required(VERSION 3.25)

unset(ENV{Torch_DIR})
unset(ENV{LIBTORCH})
file(REMOVE_RECURSE "${work_folder}")
set(failures 0)

# case(<name> <expected exit: 0 or 1> <text that the output must hold> <cmake arguments>...)
function(case name expected_exit expected_text)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${source_folder}" -B "${work_folder}/${name}" ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake wraps messages
  string(FIND "${output}" "${expected_text}" found)
  if(NOT result EQUAL expected_exit OR found EQUAL -1)
    message(SEND_ERROR "${name}: exit ${result}, expected ${expected_exit}; expected \"${expected_text}\" in:\n${output}")
  endif()
endfunction()

# A folder that looks like LibTorch of this version.
function(make_libtorch folder major minor patch)
  file(WRITE "${folder}/include/ATen/ATen.h" "")
  file(WRITE "${folder}/include/torch/headeronly/version.h"
    "#define TORCH_VERSION_MAJOR ${major}\n#define TORCH_VERSION_MINOR ${minor}\n#define TORCH_VERSION_PATCH ${patch}\n")
  file(WRITE "${folder}/lib/libtorch_cpu.so" "")
  file(WRITE "${folder}/lib/libc10.so" "")
endfunction()

set(old "${work_folder}/old")
make_libtorch("${old}" 2 10 1)
set(new "${work_folder}/new")
make_libtorch("${new}" 2 16 0)
set(other "${work_folder}/other")
make_libtorch("${other}" 2 14 1)
set(partial "${work_folder}/partial")
make_libtorch("${partial}" 2 11 0)
file(REMOVE "${partial}/lib/libc10.so")

case(right_root 0 "root: ${libtorch}" "-DLIBTORCH=${libtorch}")
case(right_package_folder 0 "root: ${libtorch}" "-DTorch_DIR=${libtorch}/share/cmake/Torch")
case(hint 0 "root: ${libtorch}" "-DLibTorch_HINTS=${work_folder}/nothing\;${libtorch}")
case(nothing_given 1 "LibTorch 2.11 was not found. Run scripts/setup.sh")
case(no_such_folder 1 "LIBTORCH is '/no/such/folder', where no include/ATen/ATen.h was found" "-DLIBTORCH=/no/such/folder")
case(wrong_is_not_skipped 1 "Torch_DIR is '/no/such/folder'" "-DTorch_DIR=/no/such/folder" "-DLIBTORCH=${libtorch}")
case(old_version 1 "${old} (from LIBTORCH) holds LibTorch 2.10.1; expected 2.11.x" "-DLIBTORCH=${old}")
case(unknown_version 1 "holds LibTorch 2.16.0; expected 2.11.x, or one of 2.12 to 2.15, since" "-DLIBTORCH=${new}")
case(known_version 0 "LibTorch 2.14.1" "-DLIBTORCH=${other}")
case(another_than_asked_for 1 "holds LibTorch 2.14.1; expected 2.11.x, since" "-DLIBTORCH=${other}" "-Dwanted=2.11")
case(broken_off 1 "${partial}/lib/libc10.so is missing" "-DLIBTORCH=${partial}")

set(ENV{LIBTORCH} "${old}")
case(environment 1 "holds LibTorch 2.10.1")
case(argument_before_environment 0 "root: ${libtorch}" "-DLIBTORCH=${libtorch}")
