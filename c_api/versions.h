#pragma once
// Checks the LibTorch version of this process.

namespace hindcast::c_api {

/// Throws std::runtime_error if it is not the release whose internals hindcast was built for.
void check_libtorch();

}  // namespace hindcast::c_api
