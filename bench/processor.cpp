#include "bench/processor.h"

#include <fstream>
#include <map>

namespace hindcast::bench {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::map<std::string, std::string> facts;  // of the first core
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t end = line.find_last_not_of(" \t", line.find(':') - 1), colon = line.find(": ");
    if (colon != std::string::npos) facts[line.substr(0, end + 1)] = line.substr(colon + 2);
  }
  if (facts["model name"].empty()) return "unknown";
  return facts["model name"] + ", family " + facts["cpu family"] + ", model " + facts["model"];
}

}  // namespace hindcast::bench
