#include "tests/machine_code/check_texts.h"

#include "tests/machine_code/compile_uses.h"
#include "tests/machine_code/text_hash.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace hindcast::tests {
namespace {

namespace fs = std::filesystem;

/// A text for one architecture.
struct Compile {
  const std::string* label;  // the table's, if it has the text
  const std::string* text;
  int architecture;
  std::string hash;
  const Uses* in_table = nullptr;
  Uses uses = {};  // none: left out
};

using TableByHash = std::unordered_map<std::string, const std::pair<const std::string, Row>*>;

/// The table has each text for one architecture. It differs from this label's if the table has the text under another test's label.
std::vector<int> architectures_for(const codegen::cuda::Nvrtc& nvrtc, const std::string& label, const std::string& text,
                                   const TableByHash& table) {
  for (const int architecture : kArchitectures) {
    if (table.contains(hash_of(nvrtc, text, architecture))) return {architecture};
  }
  return {architecture_of(label)};
}

std::string name_of(const Compile& one) { return *one.label + " for sm_" + std::to_string(one.architecture); }

void compile(const codegen::cuda::Nvrtc& nvrtc, const std::vector<Compile*>& wanted) {
  std::vector<TextFor> texts;
  for (const Compile* one : wanted) texts.push_back({one->text, one->architecture});
  std::vector<Uses> uses = compile_uses(nvrtc, texts);
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i]->uses = std::move(uses[i]);
}

void add_problems(const Compile& one, const AllowedSpills& allowed_spills, std::vector<std::string>& problems) {
  if (one.in_table != nullptr && one.uses != *one.in_table) {
    problems.push_back(name_of(one) + ": the table has\n  " + text_of(*one.in_table) + "\nand NVRTC makes\n  " + text_of(one.uses) +
                       "\n`make kernel-table` writes the table anew.");
  }
  for (const auto& [kernel, use] : one.uses) {
    const auto allowed = allowed_spills.find({*one.label, kernel});
    if (allowed != allowed_spills.end() && use.spilled_bytes <= allowed->second) continue;
    if (lacks_registers(*one.text, kernel, use))
      problems.push_back(name_of(one) + " lacks registers: " + text_of({{kernel, use}}) + "\n" + *one.text);
  }
}

}  // namespace

Texts texts_in(const std::string& folder) {
  std::map<std::string, fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cu") continue;
    paths[entry.path().lexically_relative(folder).replace_extension().string()] = entry.path();
  }
  Texts texts;
  std::unordered_set<std::string> seen;
  for (const auto& [label, path] : paths) {
    std::ifstream in(path);
    std::string text(std::istreambuf_iterator<char>(in), {});
    if (seen.insert(text).second) texts[label] = std::move(text);
  }
  return texts;
}

Check check_texts(const codegen::cuda::Nvrtc& nvrtc, const Texts& texts, const Table& table, KnownUses& earlier,
                  const CheckOptions& options) {
  TableByHash by_hash;
  for (const auto& line : table.rows) by_hash[line.second.hash] = &line;
  std::vector<Compile> all;
  for (const auto& [label, text] : texts) {
    for (const int architecture : options.all_architectures ? std::vector<int>(kArchitectures.begin(), kArchitectures.end())
                                                            : architectures_for(nvrtc, label, text, by_hash))
      all.push_back({&label, &text, architecture, hash_of(nvrtc, text, architecture)});
  }

  const size_t step = std::max<size_t>(options.part.count / kMoreOfUnknown, 1);
  const Part part_of_unknown{options.part.index % step, step};
  Check check;
  size_t in_table = 0, unknown = 0;
  std::vector<Compile*> wanted;
  for (Compile& one : all) {
    if (const auto row = by_hash.find(one.hash); row != by_hash.end()) {
      one.label = &row->second->first;
      one.in_table = &row->second->second.uses;
      if (options.part.has(in_table++)) {
        ++check.compiled_again;
        wanted.push_back(&one);
      } else {
        ++check.known;
        one.uses = *one.in_table;
      }
    } else if (const auto found = earlier.find(one.hash); found != earlier.end()) {
      ++check.known;
      one.uses = found->second;
    } else if (part_of_unknown.has(unknown++)) {
      ++check.compiled;
      wanted.push_back(&one);
    } else {
      ++check.left_out;
    }
  }
  compile(nvrtc, wanted);
  for (const Compile& one : all) add_problems(one, options.allowed_spills, check.problems);
  for (const Compile* one : wanted) earlier[one->hash] = one->uses;
  return check;
}

}  // namespace hindcast::tests
