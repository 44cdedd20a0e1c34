#include "tests/preload/programs/training.h"

extern "C" int train() { return hindcast::tests::train_right() ? 1 : 0; }
