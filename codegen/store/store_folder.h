#pragma once
// The location of the kernel store on disk.

#include <string>

namespace hindcast::codegen::store {

/// HINDCAST_CACHE_DIR, otherwise $XDG_CACHE_HOME/hindcast, otherwise $HOME/.cache/hindcast. Empty, which means no store, if
/// HINDCAST_CACHE_DIR is set to an empty string or to 0, or if none of these variables is set.
std::string default_store_folder();

}  // namespace hindcast::codegen::store
