#include "codegen/cuda/kernels.h"

#include "base/fork.h"
#include "base/fork_gate.h"
#include "codegen/cuda/row_source.h"
#include "codegen/cuda/source.h"
#include "codegen/kernel/kernel_table.h"

#include <algorithm>
#include <exception>
#include <vector>

namespace hindcast::codegen::cuda {
namespace {

std::vector<Entry> entries_of(const Body& body) {
  using enum Entry;
  if (body.of_sets) return {Sets, SetsEach};
  if (!body.by_rows) return {Dense, DenseFew, DenseEach, Nest, NestEach, NestHuge, Tiles};
  std::vector<Entry> entries = {Rows, RowsEach, RowsLong, RowsLongEach};
  if (may_split_rows(body)) entries.insert(entries.end(), {RowsSplit, RowsSplitEach});
  if (goes_by_segments(body)) entries = {Segments, SegmentsEach};
  if (has_results_over_rows(body)) entries.push_back(Merge);
  return entries;
}

class WithMachine final : public KernelCompiler {
 public:
  explicit WithMachine(const Machine& machine) : machine_(machine) {}

  std::string_view identity() const override { return machine_.identity(); }
  std::string compile(std::string_view text) const override { return machine_.compile(text); }
  std::shared_ptr<const Kernel> load(std::string_view object, const Body& body) const override {
    auto kernel = std::make_shared<CudaKernel>();
    kernel->module = machine_.load(object);
    for (const Entry entry : entries_of(body)) kernel->functions[static_cast<size_t>(entry)] = kernel->module->function(name_of(entry));
    kernel->bytes = object.size();
    return kernel;
  }

 private:
  const Machine& machine_;
};

// Used only inside of the compilers' gate, so that no fork finds its lock held.
KernelTable& table() {
  static auto* const table = base::first_use([] { return new KernelTable; });
  return *table;
}

}  // namespace

size_t CudaKernel::footprint_of_one(long holders) const { return bytes / static_cast<size_t>(std::max(holders, 1L)); }

std::shared_ptr<const CudaKernel> kernel_of(const Body& body, std::string& why_not) {
  const base::InsideCompiler inside;
  const Machine* const with = machine(&why_not);
  if (with == nullptr) return nullptr;
  try {
    return std::static_pointer_cast<const CudaKernel>(table().find_or_make(WithMachine(*with), source_of(body), body));
  } catch (const std::exception& error) {
    why_not = error.what();
    return nullptr;
  }
}

Shape shape_of(const Body& body) { return {vector_length(body), vector_length(body) * items_in_flight(body), elements_one_by_one(body)}; }

}  // namespace hindcast::codegen::cuda
