#pragma once
/// hindcast ahead of time: functions and modules whose forward and backward are traced together. Valid C++17.

#include <hindcast/aot_function.h>
#include <hindcast/aot_graphs.h>
#include <hindcast/aot_module.h>
