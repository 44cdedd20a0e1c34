#include "codegen/cuda/row_writer.h"

#include "base/format.h"
#include "codegen/cuda/body_lines.h"
#include "codegen/cuda/online_softmax.h"
#include "codegen/cuda/reduction_text.h"
#include "codegen/fuse/functors.h"
#include "codegen/fuse/row_passes.h"
#include "codegen/kernel/body_text.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace hindcast::codegen::cuda {
namespace {

using base::format;
using Kind = Reduction::Kind;
using Over = Reduction::Over;

// A later pass recomputes values, from registers or from cached memory. If the row is in registers, expensive values are kept there.
bool is_cheap(const BodyOp&) { return true; }
bool is_cheap_in_registers(const BodyOp& op) { return op.kind == BodyOp::Kind::OneHot || codegen::is_cheap(op.function); }

size_t reductions_before(const Body& body, size_t op) {
  const auto end = body.ops.begin() + static_cast<std::ptrdiff_t>(op);
  return static_cast<size_t>(std::count_if(body.ops.begin(), end, [](const BodyOp& one) { return one.reduces_row(); }));
}
size_t reductions_in(const Body& body) { return reductions_before(body, body.ops.size()); }

// A row in registers is available for each reduction; other rows are read again, so that one pass fewer pays.
Body body_of(const Body& body, RowForm form) { return form == RowForm::InRegisters ? body : with_online_softmax(body); }

class Writer {
 public:
  Writer(const Body& body, RowForm form)
      : body_(body_of(body, form)),
        form_(form),
        passes_(body_, form == RowForm::InRegisters ? is_cheap_in_registers : is_cheap),
        reductions_(body_),
        type_(type_name(body.compute)),
        loads_(body.loads.size()) {}

  std::string run() { return form_ == RowForm::Split ? split_rows() : rows_of_blocks(); }

 private:
  std::string rows_of_blocks() {
    begin_function();
    begin_results_over_rows();
    begin_row();
    if (form_ == RowForm::InRegisters) load_row();
    for (size_t pass = 0; pass < passes_.count(); ++pass) {
      numbers_of_row(pass);
      form_ == RowForm::Segments ? pass_by_segments(pass) : flat_pass(pass);
    }
    numbers_of_row(passes_.count());
    store_numbers_of_row();
    line(2, "}");
    form_ == RowForm::InRegisters ? store_results_over_rows() : store_kept_sums();
    return text_ + "}\n\n";
  }

  // One launch per pass, and one for the rest: the blocks of one row communicate through memory, where each writes its number for each
  // reduction.
  std::string split_rows() {
    text_ += "template <int kVector>\nHC_DEVICE void run_rows_split(const Rows& arguments) {\n";
    text_ += scalar_lines(body_, "arguments.scalars", "  ");
    line(2, "const int64 of_row = arguments.segments * arguments.columns / kVector, begin = blockIdx.x * arguments.pieces_of_split;");
    line(2, "const int64 pieces = min(of_row, begin + arguments.pieces_of_split), row = blockIdx.y;");
    line(2, "constexpr bool is_row = true, kKeeps = false;");
    line(2, "constexpr int kItems = 1;");
    shift_ = -2;
    place_row();
    for (size_t pass = 0; pass < passes_.count(); ++pass) {
      numbers_of_row(pass);
      line(4, format("if (arguments.pass == {}) {{", pass));
      shift_ = 0;
      flat_pass(pass);
      for (const size_t op : reductions_of(pass)) {
        if (reductions_.is_leader(op))
          line(4, format("if (threadIdx.x == 0) {}[blockIdx.x] = {};", numbers_of(op), reductions_.accumulator(op)));
      }
      line(4, "return;");
      shift_ = -2;
      line(4, "}");
      meet(pass);
    }
    numbers_of_row(passes_.count());
    store_numbers_of_row();
    return text_ + "}\n\n";
  }

  // The address where the blocks of this row write their numbers.
  std::string numbers_of(size_t op) const {
    return format("(({}*)(arguments.numbers + (row * {} + {}) * arguments.splits * kNumberBytes))", reductions_.type_of_number(op),
                  reductions_in(body_), reductions_before(body_, op));
  }

  void meet(size_t pass) {
    for (const size_t op : reductions_of(pass)) {
      add_lines(4, {op}, &ReductionText::begin);
      if (reductions_.is_leader(op)) {
        const std::string number = reductions_.accumulator(op);
        line(4, "for (int64 split = threadIdx.x; split < arguments.splits; split += blockDim.x)");
        line(6, format("{} = {}({}, {}[split]);", number, reductions_.combine(body_.ops[op].reduction.kind), number, numbers_of(op)));
      }
      add_lines(4, {op}, &ReductionText::end);
    }
  }

  void line(int indent, const std::string& text) { text_ += std::string(static_cast<size_t>(indent + shift_), ' ') + text + "\n"; }
  std::string type_of(size_t tensor) const {
    return std::string(type_name(tensor < loads_ ? body_.loads[tensor].type : body_.stores[tensor - loads_].type));
  }
  size_t tensors() const { return loads_ + body_.stores.size(); }
  bool is_dense(size_t load) const { return body_.loads[load].pattern == AccessPattern::Dense; }
  bool is_per_segment(size_t load) const { return body_.loads[load].pattern == AccessPattern::PerSegment; }
  bool is_needed(size_t load) const {
    for (size_t pass = 0; pass < passes_.count(); ++pass) {
      if (passes_.loads(pass, load)) return true;
    }
    return false;
  }

  void begin_function() {
    const char* const name = form_ == RowForm::InRegisters ? "rows" : form_ == RowForm::Long ? "rows_long" : "segments";
    text_ += form_ == RowForm::InRegisters ? "template <int kVector, int kItems, bool kFlat>\n"
             : form_ == RowForm::Long      ? "template <int kVector, int kItems, bool kKeeps>\n"
                                           : "template <int kVector, bool kKeeps>\n";
    text_ += format("HC_DEVICE void run_{}(const Rows& arguments) {{\n", name);
    text_ += scalar_lines(body_, "arguments.scalars", "  ");
    line(2, "const int64 slices = int64(gridDim.x) * blockDim.y;");
    line(2, "[[maybe_unused]] const int64 slice = int64(blockIdx.x) * blockDim.y + threadIdx.y;");
    if (form_ == RowForm::InRegisters) {
      line(2, "const uint32 pieces = arguments.segments * arguments.columns / kVector;");
      line(2, "const uint32 first_piece = blockIdx.y * (blockDim.x * kItems) + threadIdx.x;");
    } else if (form_ == RowForm::Long) {
      line(2, "const int64 pieces = arguments.segments * arguments.columns / kVector;");
    } else {
      line(2, "const int64 pieces = arguments.columns / kVector;");
    }
    if (form_ != RowForm::InRegisters) begin_kept_loads();
  }

  // Loads that one pass keeps in shared memory for a later one. A thread reads only what it has written itself.
  void begin_kept_loads() {
    std::string begin = "smem + threadIdx.y * arguments.kept_bytes";
    for (size_t i = 0; i < loads_; ++i) {
      if (!passes_.is_read_again(i)) continue;
      line(2, format("[[maybe_unused]] {}* const kept{} = ({}*)({});", type_of(i), i, type_of(i), begin));
      begin = behind_kept_ = format("(char*)kept{} + bytes_kept(arguments.segments * arguments.columns, sizeof({}))", i, type_of(i));
    }
  }

  // Sums of columns are kept in shared memory too, as many as fit (launch_config.cpp); otherwise each row would read and write them in
  // global memory.
  bool may_keep_sum(size_t store) const {
    return form_ == RowForm::Long && !behind_kept_.empty() && body_.stores[store].extent == Extent::Columns;
  }

  // Results over rows are in registers, or in the slice's memory, where each thread accesses only its own elements. Those of channels are
  // shared by the row's threads.
  void begin_results_over_rows() {
    bool has_channels = false;
    size_t sums = 0;
    if (has_moments_over_rows(body_)) line(2, "int seen = 0;");
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (!store.is_over_rows()) continue;
      if (form_ == RowForm::InRegisters) {
        line(2, format("{} c{}[kItems][kVector];", type_, i));
        text_ += "#pragma unroll\n";
        line(2, "for (int k = 0; k < kItems; ++k) {");
        text_ += "#pragma unroll\n";
        line(4, format("for (int j = 0; j < kVector; ++j) c{}[k][j] = {};", i, reductions_.neutral(store.over_rows)));
        line(2, "}");
        continue;
      }
      const std::string of_slice = format("({}*)(arguments.pointers[{}] + slice * arguments.partial_bytes[{}])", type_, loads_ + i, i);
      if (may_keep_sum(i)) {
        const std::string bytes = format("bytes_kept(arguments.segments * arguments.columns, sizeof({}))", type_);
        line(2, format("{}* const slice{} = {};", type_, i, of_slice));
        line(2, format("const bool keeps{} = kKeeps && arguments.kept_sums > {};", i, sums));
        line(2, format("{}* const c{} = keeps{} ? ({}*)({} + {} * {}) : slice{};", type_, i, i, type_, behind_kept_, sums++, bytes, i));
      } else {
        line(2, format("{}* const c{} = {};", type_, i, of_slice));
      }
      if (store.extent != Extent::Channels) continue;
      has_channels = true;
      // A slice without rows has no memory to initialise.
      line(2, format("for (int64 i = threadIdx.x; slice < arguments.rows && i < arguments.counts[{}]; i += blockDim.x) c{}[i] = {};", i, i,
                     reductions_.neutral(store.over_rows)));
    }
    if (has_channels) line(2, "__syncthreads();");
  }

  // All threads of a block make the same number of iterations, since the loop contains barriers.
  void begin_row() {
    line(2, "for (int64 first = int64(blockIdx.x) * blockDim.y; first < arguments.rows; first += slices) {");
    line(4, "const int64 row = first + threadIdx.y;");
    line(4, "const bool is_row = row < arguments.rows;");
    if (has_moments_over_rows(body_))
      line(4, format("if (is_row) ++seen;\n    const {} share = {}(1) / {}(seen == 0 ? 1 : seen);", type_, type_, type_));
    place_row();
  }

  void place_row() {
    std::string begin = "int64 rest = is_row ? row : 0";
    for (size_t i = 0; i < tensors(); ++i) begin += format(", to{} = 0", i);
    line(4, begin + ";");
    // A special case for one loop over rows, which most kernels have: NVRTC would unroll the general loop further than needed. In split
    // rows, ptxas then allows more threads and spills registers.
    line(4, format("if ({}arguments.loops == 1) {{", form_ == RowForm::InRegisters ? "kFlat || " : ""));
    for (size_t i = 0; i < tensors(); ++i) line(6, format("to{} = rest * arguments.row_strides[0][{}];", i, i));
    line(4, "} else {");
    if (form_ != RowForm::Split) text_ += "#pragma unroll 1\n";
    line(4, "for (int loop = arguments.loops - 1; loop >= 0; --loop) {");
    line(6, "const int64 before = divide(rest, arguments.sizes[loop]), index = rest - before * arguments.sizes[loop].divisor;");
    line(6, "rest = before;");
    for (size_t i = 0; i < tensors(); ++i) line(6, format("to{} += index * arguments.row_strides[loop][{}];", i, i));
    line(4, "}");
    line(4, "}");
    for (size_t i = 0; i < loads_; ++i) {
      if (body_.loads[i].pattern == AccessPattern::Broadcast) line(4, load_from(body_, i, place(i, "0")));
    }
  }

  // The element at `bytes` after the row's first.
  std::string place(size_t tensor, const std::string& bytes) const {
    return format("*({}{}*)(arguments.pointers[{}] + to{}{})", tensor < loads_ ? "const " : "", type_of(tensor), tensor, tensor,
                  bytes == "0" ? "" : " + " + bytes);
  }
  // The byte offset of a piece (a vector) from the row's first element.
  std::string bytes_of_piece(size_t tensor) const {
    if (form_ == RowForm::Segments)
      return format("segment * arguments.segment_strides[{}] + piece * (kVector * sizeof({}))", tensor, type_of(tensor));
    return format("segment * arguments.segment_strides[{}] + within * (kVector * sizeof({}))", tensor, type_of(tensor));
  }
  void where_in_segments(int indent) {
    line(indent,
         format("[[maybe_unused]] const int64 segment = {}arguments.segments == 1 ? 0 : divide(piece, arguments.pieces_of_segment);",
                form_ == RowForm::InRegisters ? "kFlat || " : ""));
    line(indent, "[[maybe_unused]] const int64 within = int64(piece) - segment * arguments.pieces_of_segment.divisor;");
  }

  std::string vector_of(size_t load) const {
    return format("{}<kVector>((const {}*)(arguments.pointers[{}] + to{} + {}))", load_function(body_, load), type_of(load), load, load,
                  bytes_of_piece(load));
  }
  // Loads a piece, from shared memory if an earlier pass kept it there; the first pass to read it keeps it.
  void load_piece(int indent, size_t pass, size_t load, const std::string& to) {
    const bool is_kept = passes_.is_read_again(load) && form_ != RowForm::Split, is_first = passes_.first_pass_of(load) == pass;
    const std::string kept =
        format("kept{} + {}", load, form_ == RowForm::Segments ? "segment * arguments.columns + piece * kVector" : "piece * kVector");
    const std::string again = format("kKeeps ? load_vector<kVector>((const {}*)({})) : ", type_of(load), kept);
    line(indent, format("{} = {}{};", to, is_kept && !is_first ? again : "", vector_of(load)));
    if (is_kept && is_first) line(indent, format("if (kKeeps) store_vector<kVector>({}, {});", kept, to));
  }

  void begin_items(int indent) {
    text_ += "#pragma unroll\n";
    line(indent, "for (int k = 0; k < kItems; ++k) {");
    if (form_ == RowForm::InRegisters) {
      line(indent + 2, "const uint32 piece = first_piece + k * blockDim.x;");
      line(indent + 2, "if (!is_row || piece >= pieces) continue;");
    } else {
      line(indent + 2, "const int64 piece = part + k * int(blockDim.x);");
      line(indent + 2, "if (piece >= pieces) continue;");
    }
  }

  // The part of the row that a thread processes at a time: all its loads come first, so that they are in flight together.
  void begin_part(size_t pass) {
    const char* const first = form_ == RowForm::Split ? "begin + threadIdx.x" : "threadIdx.x";
    line(4, format("for (int64 part = {}; is_row && part < pieces; part += kItems * int(blockDim.x)) {{", first));
    bool loads = false;
    for (size_t i = 0; i < loads_; ++i) {
      if (!is_dense(i) || !passes_.loads(pass, i)) continue;
      loads = true;
      line(6, format("{} a{}[kItems];", vector_type(body_, i, "kVector"), i));
    }
    if (!loads) return;
    begin_items(6);
    where_in_segments(8);
    for (size_t i = 0; i < loads_; ++i) {
      if (is_dense(i) && passes_.loads(pass, i)) load_piece(8, pass, i, format("a{}[k]", i));
    }
    line(6, "}");
  }

  void load_row() {
    for (size_t i = 0; i < loads_; ++i) {
      if (is_dense(i) && is_needed(i)) line(4, format("{} a{}[kItems];", vector_type(body_, i, "kVector"), i));
    }
    // A thread without a piece reads the first one and ignores it: otherwise its registers would have to preserve the previous row.
    text_ += "#pragma unroll\n";
    line(4, "for (int k = 0; k < kItems; ++k) {");
    line(6, "const uint32 wanted = first_piece + k * blockDim.x, piece = is_row && wanted < pieces ? wanted : 0;");
    where_in_segments(6);
    for (size_t i = 0; i < loads_; ++i) {
      if (is_dense(i) && is_needed(i)) line(6, format("a{}[k] = {};", i, vector_of(i)));
    }
    line(4, "}");
  }

  void numbers_of_row(size_t pass) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.is_of_rows(i) || body_.ops[i].reduces_row() || passes_.pass_of(i) != pass) continue;
      line(4, format("const {} {};", type_, assignment(body_, i)));
    }
  }

  void add_lines(int indent, const std::vector<size_t>& ops, std::string (ReductionText::*text)(size_t) const) {
    for (const size_t op : ops) {
      const std::string one = (reductions_.*text)(op);
      if (!one.empty()) line(indent, one);
    }
  }

  std::vector<size_t> reductions_of(size_t pass) const {
    std::vector<size_t> ops;
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (passes_.reduces(pass, i)) ops.push_back(i);
    }
    return ops;
  }

  void flat_pass(size_t pass) {
    const std::vector<size_t> reductions = reductions_of(pass);
    add_lines(4, reductions, &ReductionText::begin);
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (passes_.fills_slot(pass, i)) line(4, format("{} k{}[kItems][kVector];", type_, i));
    }
    const bool by_parts = form_ != RowForm::InRegisters;
    if (by_parts) {
      begin_part(pass);
      shift_ += 2;
    }
    begin_items(4);
    where_in_segments(6);
    for (size_t i = 0; i < loads_; ++i) {
      if (is_per_segment(i) && passes_.loads(pass, i))
        line(6, load_from(body_, i, place(i, format("segment * arguments.segment_strides[{}]", i))));
    }
    elements(pass, reductions, [](size_t) { return true; });
    line(4, "}");
    if (by_parts) {
      shift_ -= 2;
      line(4, "}");
    }
    end_reductions(reductions);
  }

  // Several sums share barriers: as many as shared memory has room for (launch_config.cpp, kNumbers).
  void end_reductions(std::vector<size_t> ops) {
    constexpr size_t kTogether = 4;
    const auto is_sum = [&](size_t op) { return body_.ops[op].reduction.kind == Kind::Sum; };
    std::vector<size_t> sums;
    std::copy_if(ops.begin(), ops.end(), std::back_inserter(sums), is_sum);
    for (size_t first = 0; first < sums.size(); first += kTogether) {
      const size_t behind = std::min(first + kTogether, sums.size());
      std::string names;
      for (size_t i = first; i < behind; ++i) names += (names.empty() ? "" : ", ") + reductions_.accumulator(sums[i]);
      line(4, "{");
      line(6, format("{} sums[] = {{{}}};", type_, names));
      line(6, "sums_over_row(sums);");
      for (size_t i = first; i < behind; ++i) line(6, format("{} = sums[{}];", reductions_.accumulator(sums[i]), i - first));
      line(4, "}");
    }
    std::erase_if(ops, is_sum);
    add_lines(4, ops, &ReductionText::end);
  }

  void pass_by_segments(size_t pass) {
    std::vector<size_t> of_row = reductions_of(pass), of_elements;
    add_lines(4, of_row, &ReductionText::begin);
    for (const size_t op : of_row) {
      if (body_.ops[op].reduces(Over::Row)) of_elements.push_back(op);
    }
    line(4, "for (int64 segment = 0; segment < arguments.segments; ++segment) {");
    for (size_t i = 0; i < loads_; ++i) {
      if (is_per_segment(i) && passes_.loads(pass, i))
        line(6, load_from(body_, i, place(i, format("segment * arguments.segment_strides[{}]", i))));
    }
    numbers_of_segment(pass, false);
    std::vector<size_t> of_segment;
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (body_.ops[i].reduces(Over::Segment) && passes_.computes(pass, i)) of_segment.push_back(i);
    }
    add_lines(6, of_segment, &ReductionText::begin);
    of_elements.insert(of_elements.end(), of_segment.begin(), of_segment.end());
    line(6, "for (int64 piece = threadIdx.x; is_row && piece < pieces; piece += blockDim.x) {");
    for (size_t i = 0; i < loads_; ++i) {
      if (!is_dense(i) || !passes_.loads(pass, i)) continue;
      line(8, format("{} a{};", vector_type(body_, i, "kVector"), i));
      load_piece(8, pass, i, format("a{}", i));
    }
    elements(pass, of_elements, [&](size_t op) { return !passes_.is_of_segments(op); });
    line(6, "}");
    add_lines(6, of_segment, &ReductionText::end);
    numbers_of_segment(pass, true);
    reduce_segments(pass, of_row);
    line(4, "}");
    for (const size_t op : of_row) {
      const bool of_numbers = body_.ops[op].reduces(Over::Segments);
      add_lines(4, {op}, of_numbers ? &ReductionText::end_numbers : &ReductionText::end);
    }
  }

  void numbers_of_segment(size_t pass, bool behind) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.is_of_segments(i) || !passes_.computes(pass, i) || passes_.is_behind_segment(i) != behind) continue;
      if (!body_.ops[i].reduces(Over::Segment)) line(6, format("const {} {};", type_, assignment(body_, i)));
    }
  }

  // All threads have a segment's numbers. One thread writes the numbers of a channel.
  void reduce_segments(size_t pass, const std::vector<size_t>& reductions) {
    for (const size_t op : reductions) {
      if (body_.ops[op].reduces(Over::Segments)) add_lines(6, {op}, &ReductionText::add_number);
    }
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (store.extent != Extent::Channels || passes_.pass_of(store.value) != pass) continue;
      line(6, "if (is_row && threadIdx.x == 0) {");
      const std::string to =
          format("(({}*)((char*)c{} + to{} + segment * arguments.segment_strides[{}]))", type_, i, loads_ + i, loads_ + i);
      line(8, format("{}* const channel = {};", type_, to));
      line(8, format("*channel = {};", reductions_.combined(store.over_rows, "*channel", name_of(store.value))));
      line(6, "}");
    }
  }

  template <class TakesPart>
  void elements(size_t pass, const std::vector<size_t>& reductions, TakesPart takes_part) {
    const int indent = form_ == RowForm::Segments ? 8 : 6;
    add_lines(indent, reductions, &ReductionText::begin_vector);
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (writes(i, pass, Extent::Columns) && form_ != RowForm::InRegisters) load_sums(indent, i);
      if (writes(i, pass, Extent::Element)) line(indent, format("Vector<{}, kVector> o{};", type_of(loads_ + i), i));
    }
    text_ += "#pragma unroll\n";
    line(indent, "for (int j = 0; j < kVector; ++j) {");
    const std::string item = form_ == RowForm::Segments ? "" : "[k]";
    for (size_t i = 0; i < loads_; ++i) {
      if (is_dense(i) && passes_.loads(pass, i)) line(indent + 2, load_from(body_, i, format("a{}{}.get(j)", i, item)));
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (passes_.reads_slot(pass, i)) line(indent + 2, format("const {} v{} = k{}[k][j];", type_, i, i));
      if (!passes_.computes(pass, i) || !takes_part(i)) continue;
      const BodyOp& op = body_.ops[i];
      if (op.kind == BodyOp::Kind::OneHot) {
        line(indent + 2,
             format("const {} v{} = {} == {} ? {} : {}(0);", type_, i, column(), name_of(op.args[0]), name_of(op.args[1]), type_));
      } else {
        line(indent + 2, format("const {} {};", type_, assignment(body_, i)));
      }
      if (passes_.fills_slot(pass, i)) line(indent + 2, format("k{}[k][j] = v{};", i, i));
    }
    add_lines(indent + 2, reductions, &ReductionText::element);
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (writes(i, pass, Extent::Element)) line(indent + 2, format("o{}.set(j, {});", i, converted(body_, body_.stores[i])));
      if (writes(i, pass, Extent::Columns)) add_to_column(indent + 2, i);
    }
    line(indent, "}");
    add_lines(indent, reductions, &ReductionText::end_vector);
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (writes(i, pass, Extent::Columns) && form_ != RowForm::InRegisters)
        line(indent, "store_vector<kVector>(" + sums_at(i, "sum") + ");");
    }
    store_vectors(indent, pass);
  }

  // Loads sums over rows from memory, those of all columns of a vector in one access.
  void load_sums(int indent, size_t i) {
    line(indent, format("Vector<{}, kVector> sum{} = {{}};", type_, i));
    line(indent, format("if (first >= slices) sum{} = load_vector<kVector>({});", i, sums_at(i)));
  }

  // The arguments of load_vector, or with `value` of store_vector, for the sums of a piece. In shared memory their chunks are strided.
  // (Keeping the strides in variables would take registers, so that a multiprocessor would hold one block of a layer norm instead of two.)
  std::string sums_at(size_t i, const std::string& value = "") const {
    const std::string more = value.empty() ? "" : format(", {}{}", value, i);
    if (!may_keep_sum(i)) return format("c{} + {}{}", i, first_column(), more);
    const std::string vector = format("Vector<{}, kVector>::", type_);
    const std::string bytes = format("(keeps{} ? piece * {}kChunk : piece * {}kBytes)", i, vector, vector);
    return format("({}*)((char*)c{} + {}){}, {}kChunk * (keeps{} ? int(pieces) : 1)", type_, i, bytes, more, vector, i);
  }

  std::string first_column() const {
    return form_ == RowForm::Segments ? "segment * arguments.columns + piece * kVector" : "int64(piece) * kVector";
  }
  std::string column() const { return first_column() + " + j"; }
  bool writes(size_t store, size_t pass, Extent extent) const {
    return body_.stores[store].extent == extent && passes_.pass_of(body_.stores[store].value) == pass;
  }

  void store_vectors(int indent, size_t pass) {
    size_t leaf = loads_ + body_.stores.size();
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const uint32_t leaves = body_.stores[i].leaves;
      if (writes(i, pass, Extent::Element)) {
        const std::string to = format("to{} + {}", loads_ + i, bytes_of_piece(loads_ + i)), type = type_of(loads_ + i);
        line(indent, format("{}store_vector<kVector>(({}*)(arguments.pointers[{}] + {}), o{});",
                            leaves == 0 ? "" : format("if (arguments.pointers[{}] != nullptr) ", loads_ + i), type, loads_ + i, to, i));
        for (uint32_t n = 0; n < leaves; ++n) {
          line(indent, format("store_to_leaf<kVector>(moved<{}>(arguments.pointers[{}], {}), moved<{}>(arguments.pointers[{}], {}), o{});",
                              type, leaf + 2 * n, to, type, leaf + 2 * n + 1, to, i));
        }
      }
      leaf += 2 * leaves;
    }
  }

  void add_to_column(int indent, size_t i) {
    const BodyStore& store = body_.stores[i];
    if (store.over_rows == Kind::M2) return;  // handled with its Mean
    const std::string value = name_of(store.value);
    const bool in_registers = form_ == RowForm::InRegisters;
    const auto place = [&](size_t of) { return in_registers ? format("c{}[k][j]", of) : format("sum{}.get(j)", of); };
    const auto put = [&](int by, size_t of, const std::string& number) {
      line(indent + by, in_registers ? format("{} = {};", place(of), number) : format("sum{}.set(j, {});", of, number));
    };
    const std::string first = "first < slices";  // the first row of the slice: memory has no sums yet
    const auto m2 = m2_beside(body_, i);
    if (store.over_rows != Kind::Mean) {
      const std::string sum = reductions_.combined(store.over_rows, place(i), value);
      put(0, i, in_registers ? sum : format("{} ? {} : {}", first, value, sum));
      return;
    }
    line(indent, "{");
    line(indent + 2, format("const {} mean = {}, distance = {} - mean;", type_,
                            in_registers ? place(i) : format("{} ? {}(0) : {}", first, type_, place(i)), value));
    line(indent + 2, format("const {} now = mean + distance * share;", type_));
    put(2, i, "now");
    if (m2) {
      const std::string before = in_registers ? place(*m2) : format("({} ? {}(0) : {})", first, type_, place(*m2));
      put(2, *m2, format("{} + distance * ({} - now)", before, value));
    }
    line(indent, "}");
  }

  void store_numbers_of_row() {
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (body_.stores[i].extent == Extent::Row)
        line(4,
             format("if ({} && threadIdx.x == 0) put_result(&{}, {}, arguments.adds >> {} & 1);",
                    form_ == RowForm::Split ? "blockIdx.x == 0" : "is_row", place(loads_ + i, "0"), converted(body_, body_.stores[i]), i));
    }
  }

  void store_kept_sums() {
    std::vector<size_t> sums;
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (may_keep_sum(i)) sums.push_back(i);
    }
    if (sums.empty()) return;
    line(2, "for (int64 piece = threadIdx.x; kKeeps && slice < arguments.rows && piece < pieces; piece += blockDim.x) {");
    for (const size_t i : sums) {
      line(4, format("if (keeps{}) store_vector<kVector>(slice{} + {}, load_vector<kVector>({}));", i, i, first_column(), sums_at(i)));
    }
    line(2, "}");
  }

  // Combines the rows of a block into one slice. If there is only one slice, it is the result.
  void store_results_over_rows() {
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (store.extent != Extent::Columns || store.over_rows == Kind::M2) continue;
      const auto m2 = store.over_rows == Kind::Mean ? m2_beside(body_, i) : std::nullopt;
      text_ += "#pragma unroll\n";
      line(2, "for (int k = 0; k < kItems; ++k) {");
      line(4, "const uint32 piece = first_piece + k * blockDim.x;");
      std::string numbers = format("c{}[k]", i);
      if (store.over_rows == Kind::Mean) {
        numbers = "moments";
        line(4, format("MomentsFrom<{}> moments[kVector];", type_));
        text_ += "#pragma unroll\n";
        line(4, format("for (int j = 0; j < kVector; ++j) moments[j] = {{{}(seen), {}(0), c{}[k][j], {}}};", type_, type_, i,
                       m2 ? format("c{}[k][j]", *m2) : format("{}(0)", type_)));
      }
      line(4, format("over_rows_of_block({}, {});", numbers, reductions_.combine(store.over_rows)));
      line(4, "if (threadIdx.y != 0 || piece >= pieces) continue;");
      text_ += "#pragma unroll\n";
      line(4, "for (int j = 0; j < kVector; ++j) {");
      const auto put = [&](size_t to, const std::string& value) {
        line(6,
             format("store_result<{}>(arguments.pointers[{}], arguments.partial_bytes[{}], arguments.is_whole, arguments.adds >> {} & 1,",
                    type_of(loads_ + to), loads_ + to, to, to));
        line(8, format("int64(piece) * kVector + j, {});", value));
      };
      put(i, store.over_rows == Kind::Mean ? "moments[j].from + moments[j].mean" : numbers + "[j]");
      if (m2) put(*m2, "moments[j].m2");
      line(4, "}");
      line(2, "}");
    }
  }

  const Body body_;
  const RowForm form_;
  const RowPasses passes_;
  const ReductionText reductions_;
  const std::string type_;
  const size_t loads_;
  std::string behind_kept_;  // the address in shared memory after what passes keep; empty if they keep nothing
  int shift_ = 0;            // added to the indentation, for code outside the loop over rows
  std::string text_;
};

}  // namespace

std::string row_function(const Body& body, RowForm form) { return Writer(body, form).run(); }

std::vector<int64_t> widths_kept(const Body& body) {
  const Body long_rows = with_online_softmax(body);
  const RowPasses passes(long_rows, is_cheap);
  std::vector<int64_t> widths;
  for (size_t i = 0; i < body.loads.size(); ++i) {
    if (passes.is_read_again(i)) widths.push_back(static_cast<int64_t>(c10::elementSize(body.loads[i].type)));
  }
  return widths;
}

size_t numbers_of_split_row(const Body& body) { return reductions_in(with_online_softmax(body)); }

size_t passes_over_row(const Body& body) { return RowPasses(with_online_softmax(body), is_cheap).count(); }

size_t values_kept_in_registers(const Body& body) { return body.by_rows ? RowPasses(body, is_cheap_in_registers).slots() : 0; }

}  // namespace hindcast::codegen::cuda
