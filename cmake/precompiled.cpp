// Empty on purpose: compiling it makes CMake build the precompiled header that the other targets reuse.
