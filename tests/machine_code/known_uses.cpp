#include "tests/machine_code/known_uses.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace hindcast::tests {

KnownUses read_known_uses(const std::string& path) {
  KnownUses known;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    try {
      const size_t space = line.find(' ');
      if (space == line.npos) throw std::invalid_argument("'" + line + "' is not a hash and what follows");
      known[line.substr(0, space)] = uses_of(line.substr(space + 1));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(path + ": " + error.what() + "; remove the file");
    }
  }
  return known;
}

void write_known_uses(const std::string& path, const KnownUses& known) {
  const std::string written = path + ".new";
  std::ofstream out(written);
  for (const auto& [hash, uses] : known) out << hash << " " << text_of(uses) << "\n";
  out.close();
  if (!out) throw std::runtime_error("cannot write " + written);
  std::filesystem::rename(written, path);
}

}  // namespace hindcast::tests
