#include "codegen/cuda/source.h"

#include "base/format.h"
#include "codegen/cuda/body_lines.h"
#include "codegen/cuda/row_source.h"
#include "codegen/cuda/row_writer.h"
#include "codegen/device/indexing.h"
#include "codegen/fuse/functors.h"
#include "codegen/kernel/body_text.h"

#include <algorithm>
#include <bit>

namespace hindcast::codegen::cuda {
namespace {

using base::format;

bool is_broadcast(const Body& body, size_t load) { return body.loads[load].pattern == AccessPattern::Broadcast; }

// The numbers of a store's leaves among all leaves: the first, and how many.
struct LeafNumbers {
  size_t first, count;
};
LeafNumbers leaves_of(const Body& body, size_t store) {
  size_t first = 0;
  for (size_t i = 0; i < store; ++i) first += body.stores[i].leaves;
  return {first, body.stores[store].leaves};
}

// The function that computes the results of one element.
std::string element_function(const Body& body) {
  std::string text = "struct Results {\n";
  for (size_t i = 0; i < body.stores.size(); ++i) text += format("  {} r{};\n", type_name(body.stores[i].type), i);
  text += "};\n\nHC_DEVICE Results element(";
  std::string parameters = body.scalars == 0 ? "" : "const uint64* scalars";
  for (size_t i = 0; i < body.loads.size(); ++i) parameters += format("{}{} x{}", parameters.empty() ? "" : ", ", type_of_load(body, i), i);
  text += parameters + ") {\n" + scalar_lines(body, "scalars", "  ");
  for (size_t i = 0; i < body.ops.size(); ++i) text += format("  const {} {};\n", type_name(body.compute), assignment(body, i));
  std::string results;
  for (const BodyStore& store : body.stores) results += (results.empty() ? "" : ", ") + converted(body, store);
  return text + format("  return {{{}}};\n}}\n\n", results);
}

std::string call_of_element(const Body& body) {
  std::string arguments = body.scalars == 0 ? "" : "arguments.scalars";
  for (size_t i = 0; i < body.loads.size(); ++i) arguments += format("{}x{}", arguments.empty() ? "" : ", ", i);
  return format("const Results result = element({});", arguments);
}

std::string broadcast_loads(const Body& body, const std::string& indent) {
  std::string lines;
  for (size_t i = 0; i < body.loads.size(); ++i) {
    if (!is_broadcast(body, i)) continue;
    lines += indent + load_from(body, i, format("*(const {}*)arguments.pointers[{}]", type_name(body.loads[i].type), i)) + "\n";
  }
  return lines;
}

// Pointers of the dense tensors. A result with leaves may have no memory of its own.
std::string pointers_of_dense(const Body& body) {
  std::string lines;
  const size_t loads = body.loads.size();
  for (size_t i = 0; i < loads; ++i) {
    const std::string_view type = type_name(body.loads[i].type);
    if (!is_broadcast(body, i)) lines += format("  const {}* const p{} = (const {}*)arguments.pointers[{}] + begin;\n", type, i, type, i);
  }
  size_t pointer = loads + body.stores.size(), leaf = 0;
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const std::string_view type = type_name(body.stores[i].type);
    const std::string offset = format("begin * sizeof({})", type);
    lines += format("  {}* const r{} = moved<{}>(arguments.pointers[{}], {});\n", type, i, type, loads + i, offset);
    for (uint32_t n = 0; n < body.stores[i].leaves; ++n, ++leaf, pointer += 2) {
      lines += format("  char* const sum{} = moved<char>(arguments.pointers[{}], {});\n", leaf, pointer, offset);
      lines += format("  char* const term{} = moved<char>(arguments.pointers[{}], {});\n", leaf, pointer + 1, offset);
    }
  }
  return lines;
}

// Stores a vector, at the element `at`.
std::string vector_stores(const Body& body, const std::string& length, const std::string& index, const std::string& indent) {
  std::string lines;
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const auto [first, count] = leaves_of(body, i);
    lines += format("{}{}store_vector<{}>(r{} + at, o{}{});\n", indent, count == 0 ? "" : format("if (r{} != nullptr) ", i), length, i, i,
                    index);
    for (size_t leaf = first; leaf < first + count; ++leaf)
      lines += format("{}store_to_leaf<{}>(moved<{}>(sum{}, at * sizeof({})), moved<{}>(term{}, at * sizeof({})), o{}{});\n", indent,
                      length, type_name(body.stores[i].type), leaf, type_name(body.stores[i].type), type_name(body.stores[i].type), leaf,
                      type_name(body.stores[i].type), i, index);
  }
  return lines;
}

std::string results_to_vectors(const Body& body, const std::string& index, const std::string& indent) {
  std::string lines;
  for (size_t i = 0; i < body.stores.size(); ++i) lines += format("{}o{}{}.set(j, result.r{});\n", indent, i, index, i);
  return lines;
}

std::string result_vectors(const Body& body, const std::string& length, const std::string& bounds, const std::string& indent) {
  std::string lines;
  for (size_t i = 0; i < body.stores.size(); ++i)
    lines += format("{}Vector<{}, {}> o{}{};\n", indent, type_name(body.stores[i].type), length, i, bounds);
  return lines;
}

// Processes one tile: all loads, then all results, then all stores. An incomplete tile is processed vector by vector, and an incomplete
// vector element by element.
std::string dense_function(const Body& body) {
  std::string text = "struct Dense {\n" + argument_fields(body) + "  int64 count;\n};\n\n";
  text +=
      "template <int kVector, int kItems>\nHC_DEVICE void run_dense(const Dense& arguments, int64 block) {\n"
      "  constexpr int kElements = kThreads * kVector * kItems;\n"
      "  const int64 begin = block * kElements, count = arguments.count - begin;\n";
  text += broadcast_loads(body, "  ") + pointers_of_dense(body);
  const auto for_each_along = [&](auto line) {
    for (size_t i = 0; i < body.loads.size(); ++i) {
      if (!is_broadcast(body, i)) text += line(i);
    }
  };
  // Computes one vector of the thread, whose place in the tile is `at`.
  const auto compute = [&](const std::string& index, const std::string& indent) {
    text += "#pragma unroll\n" + indent + "for (int j = 0; j < kVector; ++j) {\n";
    for_each_along([&](size_t i) { return indent + "  " + load_from(body, i, format("a{}{}.get(j)", i, index)) + "\n"; });
    text += indent + "  " + call_of_element(body) + "\n" + results_to_vectors(body, index, indent + "  ") + indent + "}\n";
  };
  text +=
      "  if (kItems == 1 || count < kElements) {\n"
      "    const int left = min(count, int64(kElements)), of_vectors = left / kVector * kVector;\n"
      "#pragma unroll 1\n"
      "    for (int at = threadIdx.x * kVector; at < of_vectors; at += kThreads * kVector) {\n";
  for_each_along([&](size_t i) { return format("      const auto a{} = load_vector<kVector>(p{} + at);\n", i, i); });
  text += result_vectors(body, "kVector", "", "      ");
  compute("", "      ");
  text += vector_stores(body, "kVector", "", "      ") + "    }\n";
  text += "    if constexpr (kVector > 1) {\n      const int at = of_vectors + threadIdx.x;\n      if (at >= left) return;\n";
  for_each_along([&](size_t i) { return "      " + load_from(body, i, format("p{}[at]", i)) + "\n"; });
  text += "      " + call_of_element(body) + "\n      constexpr int j = 0;\n" + result_vectors(body, "1", "", "      ") +
          results_to_vectors(body, "", "      ") + vector_stores(body, "1", "", "      ") + "    }\n    return;\n  }\n";
  for_each_along([&](size_t i) { return format("  Vector<{}, kVector> a{}[kItems];\n", type_name(body.loads[i].type), i); });
  text += result_vectors(body, "kVector", "[kItems]", "  ");
  const std::string loop = "#pragma unroll\n  for (int k = 0; k < kItems; ++k) {\n",
                    place = "    const int at = (k * kThreads + threadIdx.x) * kVector;\n";
  text += loop + place;
  for_each_along([&](size_t i) { return format("    a{}[k] = load_vector<kVector>(p{} + at);\n", i, i); });
  text += "  }\n" + loop;
  compute("[k]", "    ");
  return text + "  }\n" + loop + place + vector_stores(body, "kVector", "[k]", "    ") + "  }\n}\n\n";
}

// The argument struct of nests. Loops, outermost first; `pieces` are elements or vectors, which the innermost loop counts. Steps are byte
// strides.
std::string nest_struct(const Body& body) {
  const size_t loads = body.loads.size(), tensors = loads + body.stores.size();
  return "struct Nest {\n" + argument_fields(body) +
         format(
             "  int64 pieces, loops;\n"
             "  int64 is_padded;  // some loads have zeros around them\n"
             "  int64 items, item_steps[{}];  // pieces per thread: neighbours in the loop around the innermost\n"
             "  Divider sizes[kMostLoops];\n"
             "  int64 steps[kMostLoops][{}];\n"
             "  int64 first[kMostLoops][{}], behind[kMostLoops][{}];  // where a load has elements\n"
             "}};\n\n",
             tensors, tensors, std::max<size_t>(loads, 1), std::max<size_t>(loads, 1));
}

std::string steps_of_loop(const Body& body, const std::string& loop, const std::string& indent) {
  std::string lines;
  for (size_t i = 0; i < body.loads.size() + body.stores.size(); ++i) lines += format("{}to{} += index * {}[{}];\n", indent, i, loop, i);
  return lines;
}

std::string no_steps(const Body& body) {
  std::string line = "  int64 to0 = 0";
  for (size_t i = 1; i < body.loads.size() + body.stores.size(); ++i) line += format(", to{} = 0", i);
  return line + ";\n";
}

// Computes a piece's offsets. Not unrolled, here and in tiles: most nests have fewer loops than NVRTC would unroll for.
std::string walk_of_nest(const Body& body, bool each) {
  std::string text = "  Index rest = piece;\n" + no_steps(body);
  if (each) {
    for (size_t i = 0; i < body.loads.size(); ++i) text += format("  bool is_there{} = true;\n", i);
  }
  text +=
      "#pragma unroll 1\n"
      "  for (int loop = arguments.loops - 1; loop >= 0; --loop) {\n"
      "    const Index before = divide(rest, arguments.sizes[loop]);\n"
      "    const int64 index = int64(rest) - int64(before) * arguments.sizes[loop].divisor;\n"
      "    rest = before;\n" +
      steps_of_loop(body, "arguments.steps[loop]", "    ");
  if (each) {
    text += "    if (arguments.is_padded) {\n";
    for (size_t i = 0; i < body.loads.size(); ++i)
      text += format("      is_there{} &= arguments.first[loop][{}] <= index && index < arguments.behind[loop][{}];\n", i, i, i);
    text += "    }\n";
  }
  return text + "  }\n";
}

std::string place_of(const Body& body, size_t tensor, bool is_load) {
  const at::ScalarType type = is_load ? body.loads[tensor].type : body.stores[tensor - body.loads.size()].type;
  return format("({}{}*)(arguments.pointers[{}] + to{})", is_load ? "const " : "", type_name(type), tensor, tensor);
}

// Stores the vectors `o`, at an offset in bytes from a tensor's first element. A result with leaves may have no memory of its own; the
// leaves have its layout.
template <class BytesOf>
std::string stores_in_nest(const Body& body, const std::string& length, const std::string& indent, BytesOf bytes_of) {
  std::string lines;
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const size_t store = body.loads.size() + i;
    const std::string_view type = type_name(body.stores[i].type);
    const std::string at = bytes_of(store);
    const auto [first, count] = leaves_of(body, i);
    lines += indent + (count == 0 ? "" : format("if (arguments.pointers[{}] != nullptr) ", store));
    lines += format("store_vector<{}>(({}*)(arguments.pointers[{}] + {}), o{});\n", length, type, store, at, i);
    for (size_t leaf = first; leaf < first + count; ++leaf) {
      const size_t sum = body.loads.size() + body.stores.size() + 2 * leaf;
      lines += format("{}store_to_leaf<{}>(moved<{}>(arguments.pointers[{}], {}), moved<{}>(arguments.pointers[{}], {}), o{});\n", indent,
                      length, type, sum, at, type, sum + 1, at, i);
    }
  }
  return lines;
}

// All vectors of a thread are in one column: their address is computed once, and their loads are in flight together.
std::string nest_function(const Body& body) {
  const std::string items = "#pragma unroll\n  for (int k = 0; k < kItems; ++k) {\n    if (k >= arguments.items) break;\n";
  const auto there = [&](size_t tensor, bool is_load) {
    const at::ScalarType type = is_load ? body.loads[tensor].type : body.stores[tensor - body.loads.size()].type;
    return format("({}{}*)(arguments.pointers[{}] + to{} + k * arguments.item_steps[{}])", is_load ? "const " : "", type_name(type), tensor,
                  tensor, tensor);
  };
  std::string text =
      "template <int kVector, int kItems>\nHC_DEVICE void run_nest(const Nest& arguments) {\n"
      "  using Index = uint32;\n"
      "  const Index piece = blockIdx.x * kThreads + threadIdx.x;\n"
      "  if (piece >= arguments.pieces) return;\n" +
      walk_of_nest(body, false);
  for (size_t i = 0; i < body.loads.size(); ++i)
    text += format("  {} a{}[kItems];\n", vector_type(body, i, is_broadcast(body, i) ? "1" : "kVector"), i);
  text += items;
  for (size_t i = 0; i < body.loads.size(); ++i)
    text += format("    a{}[k] = {}<{}>({});\n", i, load_function(body, i), is_broadcast(body, i) ? "1" : "kVector", there(i, true));
  text += "  }\n" + items + result_vectors(body, "kVector", "", "    ") + "#pragma unroll\n    for (int j = 0; j < kVector; ++j) {\n";
  for (size_t i = 0; i < body.loads.size(); ++i)
    text += "      " + load_from(body, i, format("a{}[k].get({})", i, is_broadcast(body, i) ? "0" : "j")) + "\n";
  text += "      " + call_of_element(body) + "\n" + results_to_vectors(body, "", "      ") + "    }\n";
  const auto place = [](size_t tensor) { return format("to{} + k * arguments.item_steps[{}]", tensor, tensor); };
  return text + stores_in_nest(body, "kVector", "    ", place) + "  }\n}\n\n";
}

// A thread's elements are kThreads apart. All loads come first, so that they are in flight together.
std::string nest_each_function(const Body& body) {
  const std::string items = "#pragma unroll\n  for (int k = 0; k < kItems; ++k) {\n",
                    piece = "    const Index piece = first + k * kThreads;\n    if (piece >= arguments.pieces) continue;\n";
  std::string text =
      "template <class Index, int kItems>\nHC_DEVICE void run_nest_each(const Nest& arguments) {\n"
      "  const Index first = Index(blockIdx.x) * (kThreads * kItems) + threadIdx.x;\n";
  for (size_t i = 0; i < body.loads.size(); ++i) text += format("  Vector<{}, 1> a{}[kItems];\n", type_name(body.loads[i].type), i);
  for (size_t i = 0; i < body.stores.size(); ++i) text += format("  int64 place{}[kItems];\n", i);
  text += items + piece + walk_of_nest(body, true);
  for (size_t i = 0; i < body.loads.size(); ++i)
    text += format("    a{}[k].set(0, is_there{} ? *{} : {}());\n", i, i, place_of(body, i, true), type_name(body.loads[i].type));
  for (size_t i = 0; i < body.stores.size(); ++i) text += format("    place{}[k] = to{};\n", i, body.loads.size() + i);
  text += "  }\n" + items + piece + "    constexpr int j = 0;\n";
  for (size_t i = 0; i < body.loads.size(); ++i) text += "    " + load_from(body, i, format("a{}[k].get(j)", i)) + "\n";
  text += "    " + call_of_element(body) + "\n" + result_vectors(body, "1", "", "    ") + results_to_vectors(body, "", "    ");
  const auto place = [&](size_t tensor) { return format("place{}[k]", tensor - body.loads.size()); };
  return text + stores_in_nest(body, "1", "    ", place) + "  }\n}\n\n";
}

// A block's tile has kTile iterations of the innermost loop by kTile of the loop along which the transposed loads (`turned`) are
// contiguous. These are read along that loop and transposed in shared memory, whose rows are one element longer, so that columns are in
// different banks.
std::string tiles_function(const Body& body) {
  const size_t tensors = body.loads.size() + body.stores.size();
  std::string text = "struct Tiles {\n" + argument_fields(body) +
                     format(
                         "  uint64 turned;  // loads, a bit each\n"
                         "  int64 rows, columns, loops;\n"
                         "  Divider row_tiles, column_tiles, sizes[kMostLoops];  // sizes: of the loops around both\n"
                         "  int64 row_strides[{}], column_steps[{}], steps[kMostLoops][{}];\n"
                         "  int64 in_shared[{}];  // where a load's tile begins\n"
                         "}};\n\n",
                         tensors, tensors, tensors, std::max<size_t>(body.loads.size(), 1));
  text +=
      "HC_DEVICE void run_tiles(const Tiles& arguments) {\n"
      "  extern __shared__ __align__(16) char smem[];\n"
      "  uint32 rest = divide(blockIdx.x, arguments.column_tiles);\n"
      "  const int64 first_column = int64(blockIdx.x - rest * arguments.column_tiles.divisor) * kTile;\n"
      "  const uint32 around = divide(rest, arguments.row_tiles);\n"
      "  const int64 first_row = int64(rest - around * arguments.row_tiles.divisor) * kTile;\n"
      "  rest = around;\n" +
      no_steps(body) +
      "#pragma unroll 1\n"
      "  for (int loop = arguments.loops - 1; loop >= 0; --loop) {\n"
      "    const uint32 before = divide(rest, arguments.sizes[loop]);\n"
      "    const int64 index = int64(rest) - int64(before) * arguments.sizes[loop].divisor;\n"
      "    rest = before;\n" +
      steps_of_loop(body, "arguments.steps[loop]", "    ") +
      "  }\n"
      "  const int x = threadIdx.x, rows = min(int64(kTile), arguments.rows - first_row);\n"
      "  const int columns = min(int64(kTile), arguments.columns - first_column);\n";
  for (size_t i = 0; i < body.loads.size(); ++i) {
    if (is_broadcast(body, i)) continue;
    const std::string_view type = type_name(body.loads[i].type);
    text += format("  {}* const tile{} = ({}*)(smem + arguments.in_shared[{}]);\n", type, i, type, i);
    text += format(
        "  if (arguments.turned >> {} & 1) {{\n"
        "    for (int y = threadIdx.y; y < columns; y += kTileRows) {{\n"
        "      if (x < rows) tile{}[y * (kTile + 1) + x] =\n"
        "          *(const {}*)(arguments.pointers[{}] + to{} + (first_row + x) * arguments.row_strides[{}] +\n"
        "                       (first_column + y) * arguments.column_steps[{}]);\n"
        "    }}\n  }}\n",
        i, i, type, i, i, i, i);
  }
  text += "  __syncthreads();\n  if (x >= columns) return;\n  for (int y = threadIdx.y; y < rows; y += kTileRows) {\n";
  const auto place = [&](size_t tensor) {
    return format("to{} + (first_row + y) * arguments.row_strides[{}] + (first_column + x) * arguments.column_steps[{}]", tensor, tensor,
                  tensor);
  };
  for (size_t i = 0; i < body.loads.size(); ++i) {
    const std::string there = format("*(const {}*)(arguments.pointers[{}] + {})", type_name(body.loads[i].type), i, place(i));
    const std::string turned = format("arguments.turned >> {} & 1 ? tile{}[x * (kTile + 1) + y] : {}", i, i, there);
    text += "    " + load_from(body, i, is_broadcast(body, i) ? there : turned) + "\n";
  }
  text += "    " + call_of_element(body) + "\n    constexpr int j = 0;\n";
  text += result_vectors(body, "1", "", "    ") + results_to_vectors(body, "", "    ");
  return text + stores_in_nest(body, "1", "    ", place) + "  }\n}\n\n";
}

// Whether the body has sin, cos or tan: the range reduction of far angles needs many registers.
bool has_angles(const Body& body) {
  return std::any_of(body.ops.begin(), body.ops.end(), [](const BodyOp& op) { return takes_angle(op.function); });
}

std::string entry(std::string_view name, std::string_view argument, const std::string& call, std::string_view more = "",
                  std::string_view bounds = "kThreads") {
  return format("extern \"C\" __global__ void __launch_bounds__({}) {}({} arguments) {{ {}(arguments{}); }}\n", bounds, name, argument,
                call, more);
}

// A block has elements of one set. All blocks search the same words for their set, which the constant cache broadcasts to all threads.
std::string sets_source(const Body& body, Entries entries) {
  const size_t tensors = body.loads.size() + body.stores.size();
  std::string text = head_of_text() + element_function(body) + dense_function(body);
  text += format("constexpr int kSets = {};\nstruct Sets {{\n", sets_of_launch(body));
  if (body.scalars != 0) text += format("  uint64 scalars[{}];\n", body.scalars);
  text += format("  int64 sets, counts[kSets], blocks_before[kSets];\n  char* pointers[kSets][{}];\n}};\n\n", tensors);
  text +=
      "template <int kVector, int kItems>\nHC_DEVICE void run_sets(const Sets& arguments) {\n"
      "  int set = 0;\n"
      "  while (set + 1 < arguments.sets && blockIdx.x >= arguments.blocks_before[set + 1]) ++set;\n"
      "  Dense dense;\n";
  for (size_t i = 0; i < tensors; ++i) text += format("  dense.pointers[{}] = arguments.pointers[set][{}];\n", i, i);
  for (uint32_t i = 0; i < body.scalars; ++i) text += format("  dense.scalars[{}] = arguments.scalars[{}];\n", i, i);
  text +=
      "  dense.count = arguments.counts[set];\n"
      "  run_dense<kVector, kItems>(dense, int64(blockIdx.x) - arguments.blocks_before[set]);\n}\n\n";
  if (entries.has(Entry::Sets)) text += entry("sets", "const Sets", format("run_sets<{}, {}>", vector_length(body), items_in_flight(body)));
  if (entries.has(Entry::SetsEach)) text += entry("sets_each", "const Sets", format("run_sets<1, {}>", elements_one_by_one(body)));
  return text;
}

std::string pointwise_source(const Body& body, Entries entries) {
  using enum Entry;
  const int length = vector_length(body), items = items_in_flight(body);
  std::string text = head_of_text() + element_function(body);
  if (entries.has_one_of({Dense, DenseFew, DenseEach})) text += dense_function(body);
  if (entries.has_one_of({Nest, NestEach, NestAny})) text += nest_struct(body);
  if (entries.has(Nest)) text += nest_function(body);
  if (entries.has_one_of({NestEach, NestAny})) text += nest_each_function(body);
  if (entries.has(Tiles)) text += tiles_function(body);
  const auto add = [&](Entry which, std::string_view argument, const std::string& call, std::string_view more = "",
                       std::string_view bounds = "kThreads") {
    if (entries.has(which)) text += entry(name_of(which), argument, call, more, bounds);
  };
  add(Dense, "const Dense", format("run_dense<{}, {}>", length, items), ", blockIdx.x");
  add(DenseFew, "const Dense", format("run_dense<{}, 1>", length), ", blockIdx.x");
  add(DenseEach, "const Dense", format("run_dense<1, {}>", elements_one_by_one(body)), ", blockIdx.x");
  // Without the second launch bound, ptxas interleaves a thread's vectors, and their registers halve the occupancy.
  add(Nest, "const Nest", format("run_nest<{}, {}>", length, items_of_nest(body)), "",
      items_of_nest(body) == 1 ? "kThreads" : "kThreads, 4");
  add(NestEach, "const Nest", format("run_nest_each<uint32, {}>", elements_one_by_one(body)));
  add(NestAny, "const Nest", format("run_nest_each<int64, {}>", elements_one_by_one(body)));
  add(Tiles, "const Tiles", "run_tiles");
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
