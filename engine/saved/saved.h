#pragma once
/// What autograd saves between forward and backward, computed again or kept elsewhere. Valid C++17.

#include "engine/saved/checkpoint.h"
#include "engine/saved/offload.h"
