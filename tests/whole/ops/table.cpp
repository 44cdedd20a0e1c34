#include "tests/whole/ops/table.h"

#include <torch/headeronly/version.h>

#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>

#ifndef HINDCAST_SOURCE_DIR
#error "HINDCAST_SOURCE_DIR: define it as the project's root, where tests/whole/ops/ops.table is"
#endif

namespace hindcast::tests::ops {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '|');) fields.push_back(trimmed(field));
  return fields;
}

void for_each_line(const std::string& path, const std::function<void(int, const std::string&)>& read) {
  std::ifstream in(path);
  if (!in) throw std::invalid_argument(path + ": cannot be opened");
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (trimmed(line).empty() || line[0] == '#') continue;
    try {
      read(number, line);
    } catch (const std::exception& e) {
      throw std::invalid_argument(path + ":" + std::to_string(number) + ": " + e.what());
    }
  }
}

void read_option(Row& row, const std::string& option) {
  const std::map<std::string, bool*> flags = {{"plain", &row.plain},       {"finite", &row.finite}, {"raises", &row.raises},
                                              {"uneven", &row.uneven},     {"opaque", &row.opaque}, {"stock", &row.stock},
                                              {"only2.11", &row.only_2_11}};
  const auto flag = flags.find(option);
  if (flag != flags.end())
    *flag->second = true;
  else if (option == "f32" || option == "f64" || option == "c64" || option == "bf16")
    row.dtypes.push_back(option);
  else
    throw std::invalid_argument("option '" + option +
                                "': expected one of f32 f64 c64 bf16 plain finite raises uneven opaque stock only2.11");
}

}  // namespace

std::vector<Row> read_rows(const std::string& path) {
  std::vector<Row> rows;
  for_each_line(path, [&](int number, const std::string& line) {
    const std::vector<std::string> field = fields(line);
    if (field.size() < 3) throw std::invalid_argument("expected 'NodeClass | aten::op.overload | arguments | options'");
    Row row;
    row.line = number;
    row.text = line;
    row.node = field[0];
    row.op = field[1];
    row.arguments = parse_arguments(field[2]);
    std::istringstream options(field.size() > 3 ? field[3] : "");
    for (std::string option; options >> option;) read_option(row, option);
    if (row.dtypes.empty()) row.dtypes = {"f32", "f64"};
    if (row.only_2_11 && TORCH_VERSION_MINOR != 11) return;
    rows.push_back(std::move(row));
  });
  return rows;
}

std::vector<Excuse> read_excuses(const std::string& path) {
  std::vector<Excuse> excuses;
  for_each_line(path, [&](int number, const std::string& line) {
    const std::vector<std::string> field = fields(line);
    if (field.size() != 2 || field[1].empty()) throw std::invalid_argument("expected 'NodeClass | reason'");
    excuses.push_back({number, field[0], field[1]});
  });
  return excuses;
}

std::string table_path(const std::string& name) {
  std::string path = HINDCAST_SOURCE_DIR "/tests/whole/ops/";
  return path += name;
}

}  // namespace hindcast::tests::ops
