#pragma once
/// hindcast's optimizer steps. Valid C++17.

#include "engine/optim/compiled_step.h"
#include "engine/optim/step_in_backward.h"
