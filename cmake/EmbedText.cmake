# cmake -Dout=<file.cpp> "-Dfiles=<a.h;b.h>" -Droot=<folder> -P EmbedText.cmake
# Writes the texts of the device library as a C++ file, so that an installed hindcast needs none of its sources. Without comments: kernels are
# known by a hash of all that they are made of (codegen/store, tests/machine_code), which a comment in codegen/device must not change. Lines stay.

set(text "// Written by cmake/EmbedText.cmake.\n#include \"codegen/kernel/device_library.h\"\n\nnamespace hindcast::codegen {\n")
string(APPEND text "namespace {\nconstexpr DeviceHeader kFiles[] = {\n")
foreach(file IN LISTS files)
  file(READ "${file}" content)
  string(REGEX REPLACE "[ \t]*//[^\n]*" "" content "${content}")
  file(RELATIVE_PATH name "${root}" "${file}")
  string(APPEND text "    {\"${name}\", R\"~~~(${content})~~~\"},\n")
endforeach()
string(APPEND text "};\n}  // namespace\n\nstd::span<const DeviceHeader> device_library() { return kFiles; }\n\n}  // namespace hindcast::codegen\n")
file(WRITE "${out}" "${text}")
