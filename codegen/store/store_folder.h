#pragma once
// Where kernels are kept between processes.

#include <string>

namespace hindcast::codegen::store {

/// HINDCAST_CACHE_DIR, else $XDG_CACHE_HOME/hindcast, else $HOME/.cache/hindcast. Empty, which means no store, when
/// HINDCAST_CACHE_DIR is set to nothing or to 0, or when there is no home either.
std::string default_store_folder();

}  // namespace hindcast::codegen::store
