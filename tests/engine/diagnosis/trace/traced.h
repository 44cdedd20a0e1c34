#pragma once
// A trace in a folder of its own, and its records read back.

#include "base/trace.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hindcast::tests {

struct Record {
  nlohmann::json head, body;  // body: null where there is none
  std::string kind() const { return head.at("kind"); }
};

inline std::string contents_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The JSON of the next script element of this type in `text` from `at` on, which moves past it; null: there is none.
inline nlohmann::json take_script(std::string_view text, size_t& at, std::string_view type) {
  const std::string open = "<script type=\"" + std::string(type) + "\">";
  if (text.substr(at, open.size()) != open) return nullptr;
  const size_t begin = at + open.size(), end = text.find("</script>", begin);
  if (end == std::string_view::npos) throw std::runtime_error("a record has no end");
  at = end + std::string_view("</script>").size();
  return nlohmann::json::parse(text.substr(begin, end - begin));
}

/// The records of a file, in order. Throws for a line that is not a record.
inline std::vector<Record> records_of(const std::filesystem::path& file, std::string_view page) {
  const std::string text = contents_of(file);
  if (text.rfind(page, 0) != 0) throw std::runtime_error("the file does not start with the page");
  std::vector<Record> records;
  for (size_t at = page.size(); at < text.size(); ++at) {
    Record record;
    record.head = take_script(text, at, "application/x-hindcast");
    record.body = take_script(text, at, "application/x-hindcast-body");
    if (record.head.is_null() || text[at] != '\n') throw std::runtime_error("no record: " + text.substr(at, 100));
    records.push_back(std::move(record));
  }
  return records;
}

/// Traces while it lives.
class Traced {
 public:
  static constexpr const char* kPage = "<!doctype html>a page\n";

  explicit Traced(uint64_t most_bytes = 256 << 20) {
    std::string name = std::filesystem::temp_directory_path() / "hindcast_trace_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder: " + name);
    folder_ = name;
    base::start_trace({folder_ / "made", kPage, most_bytes});
  }
  ~Traced() {
    base::stop_trace();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

  /// The folder of its files, which did not exist before.
  std::filesystem::path folder() const { return folder_ / "made"; }
  std::filesystem::path file() const { return base::trace_path(); }
  std::vector<Record> records() const { return records_of(file(), kPage); }
  std::vector<Record> of_kind(std::string_view kind) const {
    std::vector<Record> records = this->records();
    std::erase_if(records, [&](const Record& record) { return record.kind() != kind; });
    return records;
  }
  /// The records of a log.
  std::vector<std::string> sentences(std::string_view channel) const {
    std::vector<std::string> texts;
    for (const Record& record : of_kind("log")) {
      if (record.head.at("channel") == channel) texts.push_back(record.head.at("text"));
    }
    return texts;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace hindcast::tests
