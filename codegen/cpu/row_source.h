#pragma once

#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cpu {

/// The function `rows` of a body by rows (source.h).
std::string rows_source(const Body& body);

}  // namespace hindcast::codegen::cpu
