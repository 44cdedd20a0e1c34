#pragma once
// The committed table of what NVRTC compiles the tests' kernels to. A text has a label, `<suite>/<test>-<n>`, and is compiled for one
// architecture, chosen by its label. The table consists of two files of this folder, sorted by label, one text per line:
//
//   kernels.table   label, architecture, the resources of its entry points (uses_as_text.h). Its diff shows what a change does to registers
//   hashes.table    label, hash (text_hash.h). A change of a writer changes most of these; their diff is not useful
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

/// Without the files, the table is empty. Throws std::invalid_argument, with the file and the line, on what write_table() does not write.
Table read_table(const std::string& folder);
void write_table(const std::string& folder, const Table& table);

/// Fixed per label, so that rows of one label can be compared; labels are spread over kArchitectures.
int architecture_of(const std::string& label);

}  // namespace hindcast::tests
