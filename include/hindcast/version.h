#pragma once
/// The release of hindcast that these headers belong to. Valid C. CMakeLists.txt reads it.

#define HINDCAST_VERSION_MAJOR 0
#define HINDCAST_VERSION_MINOR 1
#define HINDCAST_VERSION_PATCH 0
#define HINDCAST_VERSION "0.1.0"  // of the same three numbers: docs_test checks it
