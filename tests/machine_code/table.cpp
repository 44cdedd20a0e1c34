#include "tests/machine_code/table.h"

#include "codegen/store/kernel_key.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace hindcast::tests {
namespace {

constexpr const char* kKernels = "/kernels.table";
constexpr const char* kHashes = "/hashes.table";
constexpr std::string_view kCompiler = "# By ";

/// Passes each line that is not a comment to `read`: its label and the rest. Labels ascend.
void for_each_line(const std::string& path, const std::function<void(const std::string& label, const std::string& rest)>& read) {
  std::ifstream in(path);
  std::string line, last;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.starts_with("#")) continue;
    try {
      const size_t space = line.find(' ');
      if (space == line.npos || space == 0) throw std::invalid_argument("'" + line + "' is not a label and what follows");
      const std::string label = line.substr(0, space);
      if (label <= last) throw std::invalid_argument("'" + label + "' stands behind '" + last + "': labels ascend");
      read(label, line.substr(space + 1));
      last = label;
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(path + ":" + std::to_string(number) + ": " + error.what() + "; `make kernel-table` writes the file");
    }
  }
}

Row row_of(const std::string& rest) {
  std::istringstream words(rest);
  Row row;
  if (!(words >> row.architecture) || std::find(kArchitectures.begin(), kArchitectures.end(), row.architecture) == kArchitectures.end())
    throw std::invalid_argument("'" + rest + "' does not begin with an architecture");
  std::string uses;
  std::getline(words, uses);
  row.uses = uses_of(uses);
  return row;
}

void check_hash(const std::string& hash) {
  if (hash.size() != 16 || hash.find_first_not_of("0123456789abcdef") != hash.npos)
    throw std::invalid_argument("'" + hash + "' is not a hash of 16 hexadecimal digits");
}

std::string compiler_in(const std::string& path) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kCompiler)) return line.substr(kCompiler.size());
  }
  throw std::invalid_argument(path + ": no line '" + std::string(kCompiler) + "...' says which NVRTC it is of");
}

}  // namespace

std::string table_folder() { return HINDCAST_SOURCE_DIR "/tests/machine_code"; }

Table read_table(const std::string& folder) {
  const std::string kernels = folder + kKernels, hashes = folder + kHashes;
  Table table;
  if (!std::filesystem::exists(kernels) && !std::filesystem::exists(hashes)) return table;
  table.compiler = compiler_in(kernels);
  for_each_line(kernels, [&](const std::string& label, const std::string& rest) { table.rows[label] = row_of(rest); });
  for_each_line(hashes, [&](const std::string& label, const std::string& hash) {
    check_hash(hash);
    const auto row = table.rows.find(label);
    if (row == table.rows.end()) throw std::invalid_argument("'" + label + "' is not in kernels.table");
    row->second.hash = hash;
  });
  for (const auto& [label, row] : table.rows) {
    if (row.hash.empty()) throw std::invalid_argument(hashes + ": '" + label + "' is missing; `make kernel-table` writes the file");
  }
  return table;
}

void write_table(const std::string& folder, const Table& table) {
  std::ofstream kernels(folder + kKernels), hashes(folder + kHashes);
  kernels
      << "# What NVRTC makes of the tests' kernels: the text, the architecture, and of each entry point the registers and, where they are\n"
         "# not 0, the bytes of shared memory, of stack and spilled. tests/machine_code/table.h explains it; `make kernel-table` writes "
         "it.\n"
      << kCompiler << table.compiler << "\n";
  hashes << "# The hashes of the texts in kernels.table.\n";
  for (const auto& [label, row] : table.rows) {
    kernels << label << " " << row.architecture << " " << text_of(row.uses) << "\n";
    hashes << label << " " << row.hash << "\n";
  }
  if (!kernels.flush() || !hashes.flush()) throw std::runtime_error("cannot write the table of kernels in " + folder);
}

int architecture_of(const std::string& label) { return kArchitectures.at(codegen::store::key_of({label}).low % kArchitectures.size()); }

}  // namespace hindcast::tests
