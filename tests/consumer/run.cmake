# The test `consumer`: installs hindcast into a folder of its own, then configures, builds and runs the project here against it. Expects
# build_folder (hindcast's), work_folder, source_folder, generator, compiler and libtorch.

cmake_minimum_required(VERSION 3.25)

function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed: ${result}")
  endif()
endfunction()

# Files of an earlier install must not hide that one is no longer installed.
file(REMOVE_RECURSE "${work_folder}/prefix")
step("installing hindcast" "${CMAKE_COMMAND}" --install "${build_folder}" --prefix "${work_folder}/prefix")
foreach(notice LICENSE THIRD_PARTY_NOTICES)
  step("finding ${notice} as it is in the tree" "${CMAKE_COMMAND}" -E compare_files
    "${source_folder}/../../${notice}" "${work_folder}/prefix/share/doc/hindcast/${notice}")
endforeach()
if(NOT EXISTS "${work_folder}/prefix/lib/libhindcast_auto.so")
  message(FATAL_ERROR "libhindcast_auto.so was not installed")
endif()
step("configuring the consumer" "${CMAKE_COMMAND}" -S "${source_folder}" -B "${work_folder}/build" -G "${generator}"
  "-DCMAKE_CXX_COMPILER=${compiler}" -DCMAKE_BUILD_TYPE=Debug
  "-DCMAKE_PREFIX_PATH=${work_folder}/prefix" "-DLIBTORCH=${libtorch}")
step("building the consumer" "${CMAKE_COMMAND}" --build "${work_folder}/build")
step("running the consumer" "${work_folder}/build/consumer")
