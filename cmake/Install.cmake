# `cmake --install`: the shared library, the public headers, and the files that let find_package(hindcast) find both.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/hindcast")

# The library finds the LibTorch that it was built with, unless the program that uses it has loaded another of its release before.
set_target_properties(hindcast PROPERTIES INSTALL_RPATH "${LibTorch_ROOT_DIR}/lib")
target_include_directories(hindcast INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
install(TARGETS hindcast EXPORT hindcastTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# Opened at run time from beside the library, or preloaded, so they are no targets that others link.
foreach(plugin hindcast_clang hindcast_cuda_graphs hindcast_auto)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()
install(EXPORT hindcastTargets NAMESPACE hindcast:: DESTINATION "${package_folder}")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/hindcastConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/hindcastConfig.cmake" INSTALL_DESTINATION "${package_folder}")
# Before 1.0, a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/hindcastConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/hindcastConfig.cmake" "${PROJECT_BINARY_DIR}/hindcastConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  DESTINATION "${package_folder}")
