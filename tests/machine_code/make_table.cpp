#include "tests/machine_code/make_table.h"

#include "tests/machine_code/compile_uses.h"
#include "tests/machine_code/text_hash.h"

#include <algorithm>
#include <vector>

namespace hindcast::tests {

Table make_table(const codegen::cuda::Nvrtc& nvrtc, const Texts& texts, KnownUses& known,
                 const std::function<void(size_t count, size_t of)>& compiled) {
  Table table{nvrtc.identity(), {}};
  std::vector<TextFor> missing;
  std::vector<const std::string*> hashes;
  for (const auto& [label, text] : texts) {
    Row& row = table.rows[label];
    row.architecture = architecture_of(label);
    row.hash = hash_of(nvrtc, text, row.architecture);
    if (known.contains(row.hash)) continue;
    missing.push_back({&text, row.architecture});
    hashes.push_back(&row.hash);
  }
  constexpr size_t kPiece = 100;
  for (size_t begin = 0; begin < missing.size(); begin += kPiece) {
    const size_t end = std::min(begin + kPiece, missing.size());
    const std::vector<Uses> uses = compile_uses(nvrtc, {missing.begin() + begin, missing.begin() + end});
    for (size_t i = begin; i < end; ++i) known[*hashes[i]] = uses[i - begin];
    compiled(end, missing.size());
  }
  for (auto& [label, row] : table.rows) row.uses = known.at(row.hash);
  return table;
}

}  // namespace hindcast::tests
