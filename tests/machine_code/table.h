#pragma once
// The committed table of what NVRTC makes of the tests' kernels. A text has a label, `<suite>/<test>-<n>`, and is compiled for one
// architecture, which its label decides. Two files of this folder are the table, sorted by label, a text a line:
//
//   kernels.table   label, architecture, what its entry points take (uses_as_text.h). Its diff shows what a change does to registers
//   hashes.table    label, hash (text_hash.h). A change of a writer changes most of these, and their diff says nothing
//
// `make kernel-table` writes both.

#include "tests/machine_code/uses_as_text.h"

#include <map>
#include <string>

namespace hindcast::tests {

struct Row {
  int architecture = 0;
  std::string hash;
  Uses uses;
};

struct Table {
  std::string compiler;             // Nvrtc::identity()
  std::map<std::string, Row> rows;  // by label
};

/// The table's folder in the tree.
std::string table_folder();

/// A folder without the files has an empty table. Throws std::invalid_argument, with the file and the line, on what write_table() does not
/// write.
Table read_table(const std::string& folder);
void write_table(const std::string& folder, const Table& table);

/// Always the same one, so that rows of one label can be compared; labels are spread over kArchitectures.
int architecture_of(const std::string& label);

}  // namespace hindcast::tests
