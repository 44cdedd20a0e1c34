#pragma once
/// hindcast's optimizer steps. Valid C++17.

#include <hindcast/compiled_step.h>
#include <hindcast/step_in_backward.h>
