#pragma once
// Which LibTorch this process has.

namespace hindcast::c_api {

/// Throws std::runtime_error if it is of another release than the one that hindcast reads the inside of.
void check_libtorch();

}  // namespace hindcast::c_api
