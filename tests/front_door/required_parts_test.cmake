# cmake -Dmodule=<RequiredParts.cmake> -P required_parts_test.cmake: which missing parts are errors.

cmake_minimum_required(VERSION 3.25)

if(DEFINED run)  # in a process of its own, since an error ends it
  include("${module}")
  hindcast_require_parts("${missing}")
  return()
endif()

# expect(<error, or nothing> <missing> <environment>...)
function(expect error missing)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env --unset=HINDCAST_WITHOUT --unset=HINDCAST_REQUIRE_PARTS ${ARGN}
      "${CMAKE_COMMAND}" -Drun=1 "-Dmodule=${module}" "-Dmissing=${missing}" -P "${CMAKE_CURRENT_LIST_FILE}"
    RESULT_VARIABLE result ERROR_VARIABLE text OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  if(error STREQUAL "" AND NOT result EQUAL 0)
    message(FATAL_ERROR "missing '${missing}', ${ARGN}: expected no error, not: ${text}")
  elseif(NOT error STREQUAL "" AND (result EQUAL 0 OR NOT text MATCHES "${error}"))
    message(FATAL_ERROR "missing '${missing}', ${ARGN}: expected an error with '${error}', not: ${text}")
  endif()
endfunction()

expect("" "" HINDCAST_REQUIRE_PARTS=1)
expect("" "clang;nvrtc")
expect("libclang-19-dev.*HINDCAST_WITHOUT=clang" "clang" HINDCAST_REQUIRE_PARTS=1)
expect("libboost-context-dev" "clang;emulator" HINDCAST_REQUIRE_PARTS=1 HINDCAST_WITHOUT=clang)
expect("" "clang;emulator;nvrtc" HINDCAST_REQUIRE_PARTS=1 HINDCAST_WITHOUT=nvrtc,clang,emulator)
expect("names 'nvcc'" "" HINDCAST_REQUIRE_PARTS=1 HINDCAST_WITHOUT=nvcc)
