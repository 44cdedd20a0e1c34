# Parts of hindcast that are optional to build and without which whole suites of tests are left out. scripts/test.sh sets the environment's
# HINDCAST_REQUIRE_PARTS: then a missing part is an error, unless the environment's HINDCAST_WITHOUT, a list with commas, names it.

set(_package_of_clang "Clang 19's libraries (apt-get install libclang-19-dev llvm-19-dev)")
set(_package_of_emulator "Boost.Context (apt-get install libboost-context-dev)")
set(_package_of_nvrtc "NVRTC (pip install nvidia-cuda-nvrtc; PyPI's torch for CUDA brings it)")

# hindcast_require_parts(<missing>): a list of some of clang, emulator, nvrtc.
function(hindcast_require_parts missing)
  string(REPLACE "," ";" without "$ENV{HINDCAST_WITHOUT}")
  foreach(part IN LISTS without)
    if(NOT DEFINED _package_of_${part})
      message(FATAL_ERROR "HINDCAST_WITHOUT names '${part}'; expected some of clang, emulator, nvrtc, with commas between them.")
    endif()
  endforeach()
  foreach(part IN LISTS missing)
    if(DEFINED ENV{HINDCAST_REQUIRE_PARTS} AND NOT part IN_LIST without)
      message(FATAL_ERROR "The tests need ${_package_of_${part}}, which was not found. HINDCAST_WITHOUT=${part} leaves their suites out.")
    endif()
  endforeach()
endfunction()
