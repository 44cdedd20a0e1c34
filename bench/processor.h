#pragma once

#include <string>

namespace hindcast::bench {

/// What Linux says of this machine's processor: its name, family and model. A virtual machine's name alone may not tell the generation.
std::string processor();

}  // namespace hindcast::bench
