// Kernel texts with one injected error each: the emulator finds it. Errors that are missed here would be missed by all tests of this
// folder.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "codegen/kernel/device_library.h"
#include "hindcast/hindcast.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/cuda_emulator/runtime/finding.h"
#include "tests/support/forward_program.h"
#include "tests/support/row_program.h"

namespace hindcast::tests::cuda::mutations_test {
namespace {

using codegen::Extent;
using Kind = codegen::Reduction::Kind;
using Over = codegen::Reduction::Over;

void run(const Function& function, const Tensors& inputs) { ForwardProgram(function, inputs).run(inputs); }
Tensors product(const Tensors& x) { return {(x[0] * x[1]).tanh() * x[1]}; }

// Past its last element a nest starts again with the first: two threads write it.

// The last block has fewer elements than the others.
void dense() { run(product, {at::randn({1500}), at::randn({1500})}); }
void large() { run(product, {at::randn({20000}), at::randn({20000})}); }
void several_items() { run(product, {at::randn({70001}), at::randn({70001})}); }
void strided() { run(product, {at::randn({9, 66}).slice(1, 0, 66, 2), at::randn({9, 33})}); }
void broadcast() { run(product, {at::randn({33, 20}), at::randn({20})}); }
void transposed() { run(product, {at::randn({65, 40}).t(), at::randn({40, 65})}); }
void padded() {
  run(
      [](const Tensors& x) {
        return Tensors{(at::constant_pad_nd(x[0], {2, 3, 1, 0}) * x[1]).tanh()};
      },
      {at::randn({10, 31}), at::randn({11, 36})});
}

// Two maxima of a row, which alternate in shared memory.
void rows(int64_t columns) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row), {"sub", {kX, result(0)}}, reduction(Kind::Max, Over::Row, result(1))};
  program.store(result(0), Extent::Row);
  program.store(result(2), Extent::Row);
  program.run(at::randn({3, columns}));
}
// Two sums together, then two more.
void sums_of_rows() {
  RowProgram program;
  const auto sum = [](codegen::Operand of) { return reduction(Kind::Sum, Over::Row, of); };
  program.ops = {sum(kX),        {"mul", {kX, kX}}, sum(result(1)), {"sub", {kX, result(0)}}, {"mul", {result(3), result(2)}},
                 sum(result(3)), sum(result(4))};
  for (const uint32_t op : {0, 2, 5, 6}) program.store(result(op), Extent::Row);
  program.run(at::randn({3, 1024}));
}
void short_rows() { rows(64); }
void rows_in_registers() { rows(1024); }
void rows_one_by_one() { rows(1023); }
void long_rows() { rows(20001); }

void columns() {
  RowProgram program;
  program.store(kX, Extent::Columns);
  program.run(at::randn({500, 68}));
}
// Of more rows than blocks: shared memory holds the sums, two of floats or none of doubles.
void columns_of_long_rows(at::ScalarType type) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row), {"sub", {kX, result(0)}}};
  program.store(kX, Extent::Columns);
  program.store(result(1), Extent::Columns);
  program.run(at::randn({7, 18000}, type));
}
void kept_columns() { columns_of_long_rows(at::kFloat); }
void columns_without_room() { columns_of_long_rows(at::kDouble); }
// Three rows, where a block has room for four.
void channels() {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Segment)};
  program.store(result(0), Extent::Channels, Kind::Max);
  program.run(at::randn({3, 2, 40}));
}

struct Mutation {
  std::string name;
  std::function<void()> program;
  std::string from, to;
  /// Threads run in order, so the first of several errors is reported.
  std::vector<Wrong> kinds;
  int occurrence = 0;
};
std::ostream& operator<<(std::ostream& out, const Mutation& mutation) { return out << mutation.name; }

/// With its first includes, the skeletons and codegen/device/threads.h, inlined.
std::string whole(std::string text) {
  std::set<std::string> included;
  for (size_t at = text.find("#include \""); at != std::string::npos; at = text.find("#include \"", at)) {
    const size_t behind = text.find('\n', at) + 1;
    const std::string name = text.substr(at + 10, behind - at - 12);
    const auto library = codegen::device_library();
    const auto header = std::find_if(library.begin(), library.end(), [&](const codegen::DeviceHeader& one) { return one.name == name; });
    if (header == library.end() || (name != "codegen/device/threads.h" && name.find("/skeletons/") == std::string::npos)) {
      at = behind;
      continue;
    }
    std::string content(header->text);
    content.replace(content.find("#pragma once"), std::string("#pragma once").size(), "");
    text.replace(at, behind - at, included.insert(name).second ? content : "");
  }
  return text;
}

class Mutations : public testing::TestWithParam<Mutation> {};

TEST_P(Mutations, AreFound) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const Mutation& mutation = GetParam();
  hindcast::reset();  // an earlier test may have left a graph with the unchanged kernel
  at::manual_seed(1);
  int edits = 0;
  const WithEdit edit([&](const std::string& of) {
    std::string text = whole(of);
    size_t at = text.find(mutation.from);
    for (int i = 0; i < mutation.occurrence && at != std::string::npos; ++i) at = text.find(mutation.from, at + 1);
    if (at == std::string::npos) return text;
    ++edits;
    return text.replace(at, mutation.from.size(), mutation.to);
  });
  try {
    mutation.program();
    ADD_FAILURE() << "nothing was found";
  } catch (const KernelError& error) {
    EXPECT_THAT(mutation.kinds, testing::Contains(error.finding().kind)) << error.what();
  }
  EXPECT_EQ(edits, 1);
}

using enum Wrong;

INSTANTIATE_TEST_SUITE_P(
    Elements, Mutations,
    testing::Values(
        Mutation{"OneElementBehind", dense, "if (at < left)", "if (at <= left)", {GlobalBounds, WriteAfterWrite}},
        Mutation{"OneVectorBehind", dense, "left / kVector * kVector;", "(left / kVector + 1) * kVector;", {GlobalBounds, WriteAfterWrite}},
        Mutation{"BlocksOverlap", large, "block * kElements,", "block * (kElements - 4),", {WriteAfterWrite}},
        Mutation{"BlocksBeginElsewhere", large, "block * kElements,", "block * kElements + 1,", {Misaligned}},
        Mutation{"ItemsOverlap",
                 several_items,
                 "(k * kThreads + int(threadIdx.x)) * kVector",
                 "(k * kThreads + int(threadIdx.x)) * kVector / 2",
                 {Misaligned, WriteAfterWrite}},
        Mutation{"OnePieceBehind",
                 broadcast,
                 "if (piece >= arguments.pieces) return;",
                 "if (piece > arguments.pieces) return;",
                 {WriteAfterWrite}},
        Mutation{"OneElementOfANestTwice", strided, "first + k * kThreads;", "first + k * (kThreads - 1);", {WriteAfterWrite}},
        Mutation{"OneElementOfThePadding", padded, "index < span.end[loop]", "index <= span.end[loop]", {GlobalBounds}},
        Mutation{"TileWithoutABarrier",
                 transposed,
                 "  __syncthreads();\n  if (x >= columns)",
                 "  if (x >= columns)",
                 {Uninitialised, ReadAfterWrite}},
        Mutation{"TileWithALateBarrier",
                 transposed,
                 "  __syncthreads();\n  if (x >= columns) return;",
                 "  if (x >= columns) return;\n  __syncthreads();",
                 {Barrier}},
        Mutation{"TileWithoutAnEnd", transposed, "if (x < rows) tile", "if (true) tile", {GlobalBounds}}),
    [](const auto& info) { return info.param.name; });

// Without the barrier before it, a thread overwrites numbers of the previous reduction that others still read.
const std::string kNextNumber = "  if (threadIdx.x % 32 == 0) of_warps",
                  kNextColumns = "#pragma unroll\n    for (int i = 0; i < kAtOnce; ++i) of_threads";

INSTANTIATE_TEST_SUITE_P(
    Rows, Mutations,
    testing::Values(
        Mutation{"SumsTooEarly",
                 sums_of_rows,
                 "  __syncthreads();\n  if (threadIdx.x % 32 == 0) {\n#pragma unroll\n    for (int i = 0; i < kCount; ++i) of_warps",
                 "  if (threadIdx.x % 32 == 0) {\n#pragma unroll\n    for (int i = 0; i < kCount; ++i) of_warps",
                 {ReadAfterWrite, WriteAfterRead}},
        Mutation{"SumsReadTooEarly",
                 sums_of_rows,
                 "  }\n  __syncthreads();\n#pragma unroll\n  for (int i = 0; i < kCount; ++i) values",
                 "  }\n#pragma unroll\n  for (int i = 0; i < kCount; ++i) values",
                 {Uninitialised, ReadAfterWrite}},
        Mutation{
            "SecondNumberTooEarly", rows_in_registers, "  __syncthreads();\n" + kNextNumber, kNextNumber, {ReadAfterWrite, WriteAfterRead}},
        Mutation{"NumberReadTooEarly",
                 rows_in_registers,
                 "  __syncthreads();\n  return over_lanes",
                 "  return over_lanes",
                 {Uninitialised, ReadAfterWrite}},
        Mutation{"HalfAWarp", rows_in_registers, "kWholeWarp = 0xffffffffu", "kWholeWarp = 0x0000ffffu", {Warp}},
        Mutation{"OnePieceOfARowBehind", rows_one_by_one, "wanted < pieces ?", "wanted <= pieces ?", {GlobalBounds}},
        Mutation{"MoreThreadsThanItSays",
                 long_rows,
                 "__launch_bounds__(512) rows_shared_each",
                 "__launch_bounds__(256) rows_shared_each",
                 {Launch}},
        Mutation{
            "OneElementOfALongRowBehind", long_rows, "if (piece >= pieces) continue;", "if (piece > pieces) continue;", {GlobalBounds}},
        Mutation{"ARowThatIsNone", short_rows, "row < arguments.rows;", "row <= arguments.rows;", {GlobalBounds, WriteAfterWrite}},
        Mutation{"NumberOfARowByAll", rows_in_registers, "place, is_row && threadIdx.x == 0}", "place, is_row}", {WriteAfterWrite}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    OverRows, Mutations,
    testing::Values(
        Mutation{"NextColumnTooEarly", columns, "    __syncthreads();\n" + kNextColumns, kNextColumns, {ReadAfterWrite, WriteAfterRead}},
        Mutation{"HalvesWithoutABarrier",
                 columns,
                 "rows /= 2) {\n      __syncthreads();",
                 "rows /= 2) {",
                 {Uninitialised, ReadAfterWrite, WriteAfterRead}},
        Mutation{"KeptSumsOverlap",
                 kept_columns,
                 "shared + sums * bytes_kept(",
                 "shared - sums * 16 + sums * bytes_kept(",
                 {ReadAfterWrite, WriteAfterRead, WriteAfterWrite}},
        Mutation{"SumsWithoutRoom", columns_without_room, "arguments.kept_sums > sums", "true", {SharedBounds, GlobalBounds}},
        Mutation{"ColumnByAllRows", columns, "if (threadIdx.y != 0 || piece", "if (piece", {WriteAfterWrite}, 1},
        Mutation{"SlicesInOnePlace", columns, "blockIdx.x * slice_bytes", "0 * slice_bytes", {WriteAfterWrite}},
        Mutation{"SlicesThatAreNone",
                 columns,
                 "one < arguments.slices ?",
                 "one < arguments.slices + kTileRows ?",
                 {GlobalBounds, Uninitialised}},
        Mutation{"SliceWithoutRows", channels, "slice < arguments.rows && at", "at", {GlobalBounds}},
        Mutation{"ChannelByAll",
                 channels,
                 "if (!place.is_row || threadIdx.x != 0) return;",
                 "if (!place.is_row) return;",
                 {ReadAfterWrite, WriteAfterRead, WriteAfterWrite}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hindcast::tests::cuda::mutations_test
