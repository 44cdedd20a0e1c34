#pragma once
/// hindcast ahead of time: functions and modules whose forward and backward are traced together. Valid C++17.

#include "engine/aot/aot_function.h"
#include "engine/aot/aot_module.h"
#include "engine/aot/graphs.h"
