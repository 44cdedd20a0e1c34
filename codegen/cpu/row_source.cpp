#include "codegen/cpu/row_source.h"

#include "codegen/cpu/source.h"
#include "codegen/kernel/body_text.h"
#include "base/format.h"

#include <algorithm>
#include <array>
#include <vector>

namespace hindcast::codegen {
namespace {

using base::format;

// What is computed again in a later pass rather than kept: it costs less than a store and a load.
constexpr std::array<std::string_view, 24> kCheap = {"add",   "sub",    "conj",        "from_parts",  "complex_add", "complex_sub",
                                                     "mul",   "neg",    "abs",         "where",       "relu",        "threshold_backward",
                                                     "clamp", "square", "eq",          "ne",          "lt",          "le",
                                                     "gt",    "ge",     "logical_xor", "logical_and", "logical_or",  "logical_not"};
bool is_cheap(const BodyOp& op) { return std::find(kCheap.begin(), kCheap.end(), op.function) != kCheap.end(); }
bool is_sum_of_row(const BodyOp& op) { return op.function == kRowSum || op.function == kSumOfRuns; }

// Elements: what loops over numbers of 4 bytes take at once.
constexpr long kSeveralVectors = 32;

// In which pass over a row what is computed.
class Passes {
 public:
  explicit Passes(const Body& body) : body_(body), extents_(extents_of_ops(body)) {
    for (const BodyOp& op : body.ops) {
      size_t ready = 0;
      for (const Operand arg : op.args) ready = std::max(ready, pass_of(arg));
      ready_.push_back(is_sum_of_row(op) ? ready + 1 : ready);
      if (is_sum_of_row(op)) count_ = std::max(count_, ready + 1);
      const bool reads_sum = std::any_of(op.args.begin(), op.args.end(),
                                         [&](Operand arg) { return arg.kind == Operand::Kind::Result && behind_run_[arg.index]; });
      behind_run_.push_back(op.function == kRunSum || (reads_sum && !is_sum_of_row(op)));
    }
    for (const BodyStore& store : body.stores) {
      if (store.extent != Extent::Row) count_ = std::max(count_, pass_of(store.value) + 1);
    }
    slot_.assign(body.ops.size(), kNone);
    needed_.assign(count_, std::vector<bool>(body.ops.size()));
    loads_.assign(count_, std::vector<bool>(body.loads.size()));
    for (size_t pass = count_; pass-- > 0;) {
      for (size_t i = 0; i < body.ops.size(); ++i) {
        if (is_sum_of_row(body.ops[i]) && ready_[i] == pass + 1) need(body.ops[i].args[0], pass);
      }
      for (const BodyStore& store : body.stores) {
        if (store.extent != Extent::Row && pass_of(store.value) == pass) need(store.value, pass);
      }
      for (size_t i = 0; i < body.ops.size(); ++i) {
        if (slot_[i] != kNone && ready_[i] == pass) need({Operand::Kind::Result, static_cast<uint32_t>(i)}, pass);
      }
    }
  }

  static constexpr size_t kNone = ~size_t(0);
  size_t count() const { return count_; }
  size_t slots() const { return slots_; }
  /// The first pass that could compute it; of numbers of the row, the first that may read them.
  size_t pass_of(Operand operand) const { return operand.kind == Operand::Kind::Result ? ready_[operand.index] : 0; }
  bool is_of_rows(size_t op) const { return extents_[op] == Extent::Row; }
  bool is_of_runs(size_t op) const { return extents_[op] == Extent::Run; }
  bool has_runs() const { return std::find(extents_.begin(), extents_.end(), Extent::Run) != extents_.end(); }
  /// A number of a run that is known when the run has been gone over.
  bool is_behind_run(size_t op) const { return behind_run_[op]; }
  bool computes(size_t pass, size_t op) const { return needed_[pass][op] && !reads_slot(pass, op); }
  bool reads_slot(size_t pass, size_t op) const { return needed_[pass][op] && slot_[op] != kNone && ready_[op] < pass; }
  bool loads(size_t pass, size_t load) const { return loads_[pass][load]; }
  size_t slot(size_t op) const { return slot_[op]; }

 private:
  void need(Operand operand, size_t pass) {
    if (operand.kind == Operand::Kind::Load) loads_[pass][operand.index] = true;
    if (operand.kind != Operand::Kind::Result) return;
    const uint32_t op = operand.index;
    if (is_of_rows(op) || needed_[pass][op]) return;
    needed_[pass][op] = true;
    if (ready_[op] < pass && !is_of_runs(op) && !is_cheap(body_.ops[op])) {
      if (slot_[op] == kNone) slot_[op] = slots_++;
      return;
    }
    for (const Operand arg : body_.ops[op].args) need(arg, pass);
  }

  const Body& body_;
  const std::vector<Extent> extents_;
  std::vector<size_t> ready_, slot_;
  std::vector<bool> behind_run_;
  std::vector<std::vector<bool>> needed_, loads_;
  size_t count_ = 0, slots_ = 0;
};

class Writer {
 public:
  Writer(const Body& body, bool leaves) : body_(body), passes_(body), type_(type_name(body.compute)), leaves_(leaves) {
    if (c10::isComplexType(body.compute)) parts_ = {".real", ".imag"};
  }

  std::string run() {
    text_ = format("extern \"C\" void {}(char* const* pointers, const double* scalars, long rows, const long* row_steps, long runs,\n",
                   leaves_ ? "leaves" : "rows") +
            "                     const long* run_steps, long columns, char* kept) {\n" + scalar_lines(body_) +
            "  for (long row = 0; row < rows; ++row) {\n";
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (body_.loads[i].walk != Walk::Still) continue;
      const auto place = format("*(const {}*)(pointers[{}] + row * row_steps[{}])", type_name(body_.loads[i].type), i, i);
      line(4, load_from(body_, i, place));
    }
    for (size_t pass = 0; pass < passes_.count(); ++pass) {
      numbers_of_row(pass);
      write_pass(pass);
    }
    numbers_of_row(passes_.count());
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (body_.stores[i].extent != Extent::Row) continue;
      const size_t at = body_.loads.size() + i;
      line(4, format("*({}*)(pointers[{}] + row * row_steps[{}]) = {};", type_name(body_.stores[i].type), at, at,
                     converted(body_, body_.stores[i])));
    }
    return text_ + "  }\n}\n";
  }

 private:
  void line(int indent, const std::string& text) { text_ += std::string(static_cast<size_t>(indent), ' ') + text + "\n"; }

  bool is_sum_of(size_t op, size_t pass, std::string_view kind) const {
    return body_.ops[op].function == kind && passes_.pass_of({Operand::Kind::Result, static_cast<uint32_t>(op)}) == pass + 1;
  }

  void numbers_of_row(size_t pass) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.is_of_rows(i) || is_sum_of_row(body_.ops[i])) continue;
      if (passes_.pass_of({Operand::Kind::Result, static_cast<uint32_t>(i)}) == pass)
        line(4, format("const {} {};", type_, assignment(body_, i)));
    }
  }

  void numbers_of_run(size_t pass, bool behind) {
    for (size_t i = 0; i < body_.loads.size() && !behind; ++i) {
      if (body_.loads[i].walk != Walk::ByRun || !passes_.loads(pass, i)) continue;
      line(6, load_from(body_, i, "*" + place("const ", i, type_name(body_.loads[i].type))));
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.is_of_runs(i) || !passes_.computes(pass, i) || passes_.is_behind_run(i) != behind) continue;
      if (body_.ops[i].function != kRunSum) line(6, format("const {} {};", type_, assignment(body_, i)));
    }
  }

  // What a run's sums are added to.
  void sums_of_run(size_t pass) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (is_sum_of(i, pass, kSumOfRuns)) line(6, format("v{} += {};", i, name_of(body_.ops[i].args[0])));
    }
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (store.extent == Extent::Channels && passes_.pass_of(store.value) == pass)
        line(6, format("*{} += {};", place("", body_.loads.size() + i, type_), name_of(store.value)));
    }
  }

  void write_pass(size_t pass) {
    std::vector<size_t> sums;  // of elements: over the row, over a run
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (is_sum_of(i, pass, kRowSum)) sums.push_back(i);
      if (is_sum_of(i, pass, kRowSum) || is_sum_of(i, pass, kSumOfRuns)) line(4, format("{} v{} = 0;", type_, i));
    }
    line(4, "for (long run = 0; run < runs; ++run) {");
    numbers_of_run(pass, false);
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (body_.ops[i].function != kRunSum || !passes_.computes(pass, i)) continue;
      sums.push_back(i);
      line(6, format("{} v{} = 0;", type_, i));
    }
    pointers(pass);
    std::vector<size_t> angles;
    for (const size_t load : angles_of(body_)) {
      if (passes_.loads(pass, load) || body_.loads[load].walk == Walk::Still) angles.push_back(load);
    }
    // A sum in one variable loses a bit each time its length doubles: sums of blocks are summed up.
    const bool in_parts = !sums.empty() || !angles.empty();
    if (in_parts) {
      text_ += block_lines("      ", "columns");
      for (const size_t sum : sums) line(6, format("{} part{} = 0;", type_, sum));
    }
    if (!angles.empty()) {
      look_at(angles);
      line(6, "if (!far) {");
      loop(pass, sums, true, true);
      line(6, "} else {");
    }
    loop(pass, sums, in_parts, false);
    if (!angles.empty()) line(6, "}");
    if (in_parts) {
      for (const size_t sum : sums) line(6, format("v{} += part{};", sum, sum));
      line(6, "}");
    }
    numbers_of_run(pass, true);
    sums_of_run(pass);
    line(4, "}");
  }

  void look_at(const std::vector<size_t>& angles) {
    line(6, "int far = 0;");
    for (const size_t load : angles) {
      if (body_.loads[load].walk != Walk::Dense) text_ += "      " + far_line(body_, load, format("x{}", load));
    }
    line(6, "for (long i = begin; i < end; ++i) {");
    for (const size_t load : angles) {
      if (body_.loads[load].walk == Walk::Dense) text_ += "        " + far_line(body_, load, format("p{}[i]", load));
    }
    line(6, "}");
  }

  // Clang fills several vectors at once and goes over the rest one by one, which is most of a short run: of that one vector is filled at
  // once.
  void loop(size_t pass, const std::vector<size_t>& sums, bool in_parts, bool near) {
    const std::string begin = in_parts ? "begin" : "0", end = in_parts ? "end" : "columns";
    if (!passes_.has_runs()) return loop(pass, sums, begin, end, near, "");
    line(6, format("const long whole = {} + ({} - {}) / {} * {};", begin, end, begin, kSeveralVectors, kSeveralVectors));
    loop(pass, sums, begin, "whole", near, "");
    loop(pass, sums, "whole", end, near, " interleave_count(1)");
  }

  void loop(size_t pass, const std::vector<size_t>& sums, const std::string& begin, const std::string& end, bool near,
            const char* interleaving) {
    // All that is written lies apart from all that is read, but for what the same iteration reads.
    text_ += format("#pragma clang loop vectorize(assume_safety){}\n", interleaving);
    line(6, format("for (long i = {}; i < {}; ++i) {{", begin, end));
    elements(pass, near);
    for (const size_t sum : sums) {
      line(8, "{");
      text_ += "#pragma clang fp reassociate(on)\n";
      const std::string value = name_of(body_.ops[sum].args[0]);
      for (const std::string_view part : parts_) line(8, format("part{}{} += {}{};", sum, part, value, part));
      line(8, "}");
    }
    line(6, "}");
  }

  void pointers(size_t pass) {
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (body_.loads[i].walk == Walk::Dense && passes_.loads(pass, i)) pointer("const ", "p", i, i, type_name(body_.loads[i].type));
    }
    size_t leaf = 0;
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (writes(store, pass)) {
        pointer("", "r", i, body_.loads.size() + i, store.extent == Extent::Columns ? type_ : type_name(store.type));
        for (size_t n = leaf; leaves_ && n < leaf + store.leaves; ++n) {
          const size_t at = body_.loads.size() + body_.stores.size() + 2 * n;
          pointer("", "sum", n, at, type_name(store.type));
          pointer("const ", "term", n, at + 1, type_name(store.type));
        }
      }
      leaf += store.leaves;
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      const size_t slot = passes_.slot(i);
      if (slot == Passes::kNone || !(passes_.reads_slot(pass, i) || fills_slot(pass, i))) continue;
      line(6, format("{}* k{} = ({}*)kept + ({} * runs + run) * columns;", type_, slot, type_, slot));
    }
  }

  void pointer(const char* constant, const char* name, size_t i, size_t at, std::string_view type) {
    line(6, format("{}{}* {}{} = {};", constant, type, name, i, place(constant, at, type)));
  }

  // Where the run begins.
  static std::string place(const char* constant, size_t at, std::string_view type) {
    return format("({}{}*)(pointers[{}] + row * row_steps[{}] + run * run_steps[{}])", constant, type, at, at, at);
  }

  bool writes(const BodyStore& store, size_t pass) const {
    return (store.extent == Extent::Element || store.extent == Extent::Columns) && passes_.pass_of(store.value) == pass;
  }

  bool fills_slot(size_t pass, size_t op) const {
    return passes_.slot(op) != Passes::kNone && passes_.pass_of({Operand::Kind::Result, static_cast<uint32_t>(op)}) == pass;
  }

  void elements(size_t pass, bool near) {
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (body_.loads[i].walk == Walk::Dense && passes_.loads(pass, i)) line(8, load_from(body_, i, format("p{}[i]", i)));
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (passes_.reads_slot(pass, i)) line(8, format("const {} v{} = k{}[i];", type_, i, passes_.slot(i)));
      if (!passes_.computes(pass, i) || passes_.is_of_runs(i)) continue;
      const BodyOp& op = body_.ops[i];
      if (op.function == kOneHot) {
        line(8, format("const {} v{} = run * columns + i == {} ? {} : {}(0);", type_, i, name_of(op.args[0]), name_of(op.args[1]), type_));
      } else {
        line(8, format("const {} {};", type_, assignment(body_, i, near)));
      }
      if (fills_slot(pass, i)) line(8, format("k{}[i] = v{};", passes_.slot(i), i));
    }
    size_t leaf = 0;
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (writes(store, pass)) {
        if (store.extent == Extent::Columns) {
          line(8, format("r{}[i] = add<{}>(r{}[i], {});", i, type_, i, name_of(store.value)));
        } else {
          text_ += store_lines(body_, i, leaf, leaves_, "        ");
        }
      }
      leaf += store.leaves;
    }
  }

  const Body& body_;
  const Passes passes_;
  const std::string_view type_;
  const bool leaves_;
  std::vector<std::string_view> parts_ = {""};  // of a number
  std::string text_;
};

}  // namespace

size_t row_scratch(const Body& body) { return body.by_rows ? Passes(body).slots() : 0; }

bool is_written_last(const Body& body, size_t store) {
  const Passes passes(body);
  return body.stores[store].extent == Extent::Element && passes.pass_of(body.stores[store].value) + 1 == passes.count();
}

std::string rows_source(const Body& body) { return Writer(body, false).run() + (has_leaves(body) ? "\n" + Writer(body, true).run() : ""); }

}  // namespace hindcast::codegen
