# cmake -Dout=<file.cpp> -Dfolder=<engine/diagnosis/trace> -P EmbedTracePage.cmake
# Writes the page of HINDCAST_TRACE as a C++ file: page.html, where a line "{{name}}" stands for the text of the file `name`.

file(READ "${folder}/page.html" page)
while(page MATCHES "{{([a-z_.]+)}}")
  set(name "${CMAKE_MATCH_1}")
  file(READ "${folder}/${name}" part)
  string(REPLACE "{{${name}}}" "${part}" page "${page}")
endwhile()
file(WRITE "${out}" "// Written by cmake/EmbedTracePage.cmake.
#include \"engine/diagnosis/trace/page.h\"

namespace hindcast::engine {

std::string_view trace_page() {
  return R\"~~~(${page})~~~\";
}

}  // namespace hindcast::engine
")
