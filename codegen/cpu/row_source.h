#pragma once

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cpu {

/// The text of the function `rows` of a row kernel (source.h).
std::string rows_source(const Body& body);

}  // namespace hindcast::codegen::cpu
