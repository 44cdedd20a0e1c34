#include "codegen/cuda/source.h"

#include "base/format.h"
#include "codegen/cuda/cost_model.h"
#include "codegen/cuda/entry_text.h"
#include "codegen/cuda/row_source.h"
#include "codegen/device/indexing.h"
#include "codegen/fuse/functors.h"
#include "codegen/kernel/body_struct.h"

#include <algorithm>
#include <bit>

namespace hindcast::codegen::cuda {
namespace {

using base::format;

bool is_broadcast(const Body& body, size_t load) { return body.loads[load].pattern == AccessPattern::Broadcast; }

// Whether the body has sin, cos or tan: the range reduction of far angles needs many registers.
bool has_angles(const Body& body) {
  return std::any_of(body.ops.begin(), body.ops.end(), [](const BodyOp& op) { return takes_angle(op.function); });
}

std::string sets_source(const Body& body, Entries entries) {
  std::string text = head_of_text({"dense"}) + body_struct(body, "Body", {cost_model()});
  const int most = sets_of_launch(body);
  const auto add = [&](Entry which, int length, int items) {
    if (!entries.has(which)) return;
    const std::string call = format("run_sets<Body, {}, {}, {}>(arguments)", length, items, most);
    text += entry_point(name_of(which), format("Sets<Body, {}>", most), "kThreads", call);
  };
  add(Entry::Sets, vector_length(body), items_in_flight(body));
  add(Entry::SetsEach, 1, elements_one_by_one(body));
  return text;
}

std::string pointwise_source(const Body& body, Entries entries) {
  using enum Entry;
  const int length = vector_length(body), items = items_in_flight(body), one_by_one = elements_one_by_one(body);
  std::vector<std::string_view> skeletons;
  if (entries.has_one_of({Dense, DenseFew, DenseEach})) skeletons.push_back("dense");
  if (entries.has_one_of({Nest, NestEach, NestAny})) skeletons.push_back("nest");
  if (entries.has(Tiles)) skeletons.push_back("tiles");
  std::string text = head_of_text(skeletons) + body_struct(body, "Body", {cost_model()});
  const auto add = [&](Entry which, std::string_view argument, const std::string& call, std::string_view bounds = "kThreads") {
    if (entries.has(which)) text += entry_point(name_of(which), argument, bounds, call);
  };
  add(Dense, "Dense<Body>", format("run_dense<Body, {}, {}>(arguments, blockIdx.x)", length, items));
  add(DenseFew, "Dense<Body>", format("run_dense<Body, {}, 1>(arguments, blockIdx.x)", length));
  add(DenseEach, "Dense<Body>", format("run_dense<Body, 1, {}>(arguments, blockIdx.x)", one_by_one));
  // Without the second launch bound, ptxas interleaves a thread's vectors, and their registers halve the occupancy.
  add(Nest, "Nest<Body>", format("run_nest<Body, {}, {}>(arguments)", length, items_of_nest(body)),
      items_of_nest(body) == 1 ? "kThreads" : "kThreads, 4");
  add(NestEach, "Nest<Body>", format("run_nest_each<Body, uint32, {}>(arguments)", one_by_one));
  add(NestAny, "Nest<Body>", format("run_nest_each<Body, int64, {}>(arguments)", one_by_one));
  add(Tiles, "Tiles<Body>", "run_tiles<Body>(arguments)");
  return text;
}

// Registers of a thread that has `length` elements of a row: for the elements, the results, sums of columns, and the row's address in each
// tensor.
size_t registers_of_row(const Body& body, size_t length) {
  size_t bytes = (body.loads.size() + body.stores.size()) * sizeof(char*);
  for (const BodyLoad& load : body.loads)
    bytes += load.pattern == AccessPattern::Dense ? (load.counts ? 1 : length) * c10::elementSize(load.type) : 0;
  for (const BodyStore& store : body.stores) {
    if (store.extent == Extent::Element) bytes += length * c10::elementSize(store.type);
    if (store.extent == Extent::Columns) bytes += length * c10::elementSize(body.compute);
  }
  return bytes / sizeof(float);
}

}  // namespace

int vector_length(const Body& body) {
  // Masks of one byte do not determine the length. A type wider than the narrowest has several accesses per vector, but not many.
  constexpr size_t kAccess = 16, kMostOfType = 32, kNarrowest = 2;
  size_t narrowest = 0, widest = 1;
  const auto see = [&](at::ScalarType type) {
    const size_t bytes = c10::elementSize(type);
    widest = std::max(widest, bytes);
    if (bytes >= kNarrowest) narrowest = narrowest == 0 ? bytes : std::min(narrowest, bytes);
  };
  for (const BodyLoad& load : body.loads) {
    if (load.pattern == AccessPattern::Dense) see(load.type);
  }
  for (const BodyStore& store : body.stores) {
    if (store.extent == Extent::Element) see(store.type);
  }
  size_t length = kAccess / (narrowest == 0 ? kNarrowest : narrowest);
  while (length * widest > kMostOfType) length /= 2;
  // A thread has at most 255 registers, and the arithmetic needs some.
  constexpr size_t kMostOfRow = 128;
  while (body.by_rows && length > 1 && registers_of_row(body, length) > kMostOfRow) length /= 2;
  return static_cast<int>(std::max<size_t>(length, 1));
}

int most_threads_of_row(const Body& body) {
  // With 512 threads, a thread has 128 registers, of which the arithmetic needs some.
  constexpr size_t kMany = 70;
  const size_t registers = registers_of_row(body, static_cast<size_t>(vector_length(body)));
  return registers > kMany ? device::kThreads : device::kMostThreadsOfRow;
}

int items_in_flight(const Body& body) {
  // Registers for loads and sums of columns: more would leave too few threads on a multiprocessor.
  constexpr size_t kRegisters = 48;
  size_t bytes = 0;
  for (const BodyLoad& load : body.loads) bytes += load.pattern == AccessPattern::Dense ? c10::elementSize(load.type) : 0;
  for (const BodyStore& store : body.stores) bytes += store.extent == Extent::Columns ? c10::elementSize(body.compute) : 0;
  const size_t length = static_cast<size_t>(vector_length(body)), of_item = std::max<size_t>(bytes * length, 1);
  // Loads and the values kept for later passes must together fit into a thread's 128 registers, beside those of the arithmetic.
  constexpr size_t kRegistersWithKept = 72;
  const size_t with_kept = of_item + values_kept_in_registers(body) * length * c10::elementSize(body.compute);
  const size_t items = std::min(kRegisters * sizeof(float) / of_item, kRegistersWithKept * sizeof(float) / with_kept);
  return has_angles(body) || items < 2 ? 1 : items < 4 ? 2 : 4;
}

// Two, if the loads and results of both vectors and the addresses of all tensors fit into the 64 registers per thread with which a
// multiprocessor holds four blocks.
int items_of_nest(const Body& body) {
  constexpr size_t kRegisters = 62, kOfAddress = sizeof(char*) / sizeof(float);
  if (body.compute != at::kFloat || has_angles(body)) return 1;
  const auto length = static_cast<size_t>(vector_length(body));
  size_t bytes = 0;
  for (size_t i = 0; i < body.loads.size(); ++i)
    bytes += c10::elementSize(body.loads[i].type) * (is_broadcast(body, i) || body.loads[i].counts ? 1 : length);
  for (const BodyStore& store : body.stores) bytes += c10::elementSize(store.type) * length;
  return 2 * bytes / sizeof(float) + kOfAddress * (body.loads.size() + body.stores.size()) <= kRegisters ? 2 : 1;
}

int elements_one_by_one(const Body& body) {
  // At least one register per element, and some for addresses.
  constexpr size_t kRegisters = 16, kMost = 4;
  const auto registers = [](at::ScalarType type) { return std::max<size_t>(c10::elementSize(type) / sizeof(float), 1); };
  size_t of_element = 0;
  for (const BodyLoad& load : body.loads) of_element += load.pattern == AccessPattern::Dense ? registers(load.type) : 0;
  for (const BodyStore& store : body.stores) of_element += store.extent == Extent::Columns ? registers(body.compute) : 0;
  const size_t most = has_angles(body) ? 2 : kMost;
  return static_cast<int>(std::bit_floor(std::clamp<size_t>(kRegisters / std::max<size_t>(of_element, 1), 1, most)));
}

int sets_of_launch(const Body& body) {
  constexpr size_t kWords = 4096 / sizeof(uint64_t);
  const size_t of_set = body.loads.size() + body.stores.size() + 2;
  return static_cast<int>((kWords - 1 - body.scalars) / of_set);
}

Entries entries_of(const Body& body) {
  using enum Entry;
  if (body.of_sets) return {Sets, SetsEach};
  if (body.by_rows) return entries_of_rows(body);
  return {Dense, DenseFew, DenseEach, Nest, NestEach, NestAny, Tiles};
}

Entries first_entries_of(const Body& body) {
  if (body.of_sets) return entries_of(body);
  return body.by_rows ? first_entries_of_rows(body) : Entries{Entry::DenseFew, Entry::NestAny};
}

std::string source_of(const Body& body, Entries entries) {
  if (body.of_sets) return sets_source(body, entries);
  return body.by_rows ? rows_source(body, entries) : pointwise_source(body, entries);
}

std::string source_of(const Body& body) { return source_of(body, entries_of(body)); }

}  // namespace hindcast::codegen::cuda
