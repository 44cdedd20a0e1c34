#include "codegen/cpu/short_rows.h"

#include "base/format.h"
#include "codegen/cpu/cost_model.h"
#include "codegen/cpu/joined_rows.h"
#include "codegen/cpu/reduction_text.h"
#include "codegen/kernel/body_text.h"

#include <algorithm>

namespace hindcast::codegen::cpu {
namespace {

using base::format;
using Kind = Reduction::Kind;

// Rows per block. A value that a later loop reads is an array of this length.
constexpr long kRowsAtOnce = 64;

// Processes the rows block by block. Columns are first copied to contiguous arrays, and results back from them: vector loads and stores
// with strides (gathers, scatters) are slower than that.
class ShortRowsWriter {
 public:
  ShortRowsWriter(const Body& body, const RowPasses& passes)
      : body_(body), passes_(passes), text_of_(body), type_(type_name(body.compute)) {}

  std::string run() {
    text_ = "static void short_rows(char* const* pointers, const double* scalars, long rows, const long* row_strides, long columns) {\n" +
            scalar_lines(body_);
    line(2, format("for (long first = 0; first < rows; first += {}) {{", kRowsAtOnce));
    line(4, format("const long count = rows - first < {} ? rows - first : {};", kRowsAtOnce, kRowsAtOnce));
    arrays();
    copy_in(4, "[0]", [&](size_t load) { return body_.loads[load].pattern == AccessPattern::Broadcast; });
    for (size_t pass = 0; pass < passes_.count(); ++pass) {
      numbers_of_rows(pass);
      write_pass(pass);
    }
    numbers_of_rows(passes_.count());
    write_numbers_of_rows();
    return text_ + "  }\n}\n\n";
  }

 private:
  void line(int indent, const std::string& text) { text_ += std::string(static_cast<size_t>(indent), ' ') + text + "\n"; }
  void begin_rows(int indent) {
    text_ += "#pragma clang loop vectorize(assume_safety) interleave_count(1)\n";
    line(indent, "for (long row = 0; row < count; ++row) {");
  }

  void arrays() {
    for (size_t i = 0; i < body_.loads.size(); ++i) line(4, format("{} p{}[{}];", type_of_load(body_, i), i, kRowsAtOnce));
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.is_of_rows(i)) continue;
      if (!is_moments(i)) line(4, format("{} n{}[{}];", type_, i, kRowsAtOnce));
      if (is_moments(i) && leader_of_pair(body_, i) == i)
        line(4, format("{} mean{}[{}], m2_{}[{}];", type_, i, kRowsAtOnce, i, kRowsAtOnce));
    }
    for (size_t i = 0; i < body_.stores.size(); ++i)
      line(4, format("{} r{}[{}];", body_.stores[i].is_over_rows() ? type_ : type_name(body_.stores[i].type), i, kRowsAtOnce));
    for (size_t slot = 0; slot < passes_.slots(); ++slot) line(4, format("{} k{}[{}];", type_, slot, kRowsAtOnce * kShortRow));
  }

  bool is_moments(size_t op) const { return body_.ops[op].reduces_row() && is_of_moments(body_.ops[op].reduction.kind); }
  // Where the numbers per row of an op are.
  std::string array_of(size_t op) const {
    if (!is_moments(op)) return format("n{}", op);
    return format("{}{}", body_.ops[op].reduction.kind == Kind::Mean ? "mean" : "m2_", leader_of_pair(body_, op));
  }

  // `column`: [i], or [0] for one number per row.
  static std::string place(const char* constant, std::string_view type, size_t at, const char* column) {
    return format("(({}{}*)(pointers[{}] + (first + row) * row_strides[{}])){}", constant, type, at, at, column);
  }
  // A loop over rows that copies the wanted loads or stores. It stays scalar: with strides, vectors gain nothing and take long to compile.
  template <class IsWanted, class Write>
  void copy(int indent, size_t count, IsWanted is_wanted, Write write) {
    if (!any_of(count, is_wanted)) return;
    text_ += "#pragma clang loop vectorize(disable) unroll(disable)\n";
    line(indent, "for (long row = 0; row < count; ++row) {");
    for (size_t i = 0; i < count; ++i) {
      if (is_wanted(i)) write(i);
    }
    line(indent, "}");
  }
  template <class IsWanted>
  void copy_in(int indent, const char* column, IsWanted is_wanted) {
    copy(indent, body_.loads.size(), is_wanted, [&](size_t i) {
      line(indent + 2, load_from(body_, i, place("const ", type_name(body_.loads[i].type), i, column)));
      line(indent + 2, format("p{}[row] = x{};", i, i));
    });
  }
  template <class IsWanted>
  void copy_out(int indent, const char* column, IsWanted is_wanted) {
    copy(indent, body_.stores.size(), is_wanted, [&](size_t i) {
      line(indent + 2, format("{} = r{}[row];", place("", type_name(body_.stores[i].type), body_.loads.size() + i, column), i));
    });
  }
  template <class Is>
  static bool any_of(size_t count, Is is) {
    for (size_t i = 0; i < count; ++i) {
      if (is(i)) return true;
    }
    return false;
  }

  // The numbers per row that are known before the pass begins.
  void numbers_before(size_t pass) {
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (body_.loads[i].pattern == AccessPattern::Broadcast) line(8, format("const {} x{} = p{}[row];", type_of_load(body_, i), i, i));
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      const bool is_known = passes_.pass_of(i) < pass || (passes_.pass_of(i) == pass && body_.ops[i].reduces_row());
      if (passes_.is_of_rows(i) && is_known) line(8, format("const {} v{} = {}[row];", type_, i, array_of(i)));
    }
  }

  // Computes those that become known when the pass begins.
  void numbers_of_rows(size_t pass) {
    const auto is_new = [&](size_t op) { return passes_.is_of_rows(op) && !body_.ops[op].reduces_row() && passes_.pass_of(op) == pass; };
    if (!any_of(body_.ops.size(), is_new)) return;
    begin_rows(4);
    numbers_before(pass);
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!is_new(i)) continue;
      line(6, format("const {} {};", type_, assignment(body_, i, cost_model())));
      line(6, format("n{}[row] = v{};", i, i));
    }
    line(4, "}");
  }

  void write_numbers_of_rows() {
    const auto is_number = [&](size_t store) { return body_.stores[store].extent == Extent::Row; };
    if (!any_of(body_.stores.size(), is_number)) return;
    begin_rows(4);
    numbers_before(passes_.count() + 1);
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (is_number(i)) line(6, format("r{}[row] = {};", i, converted(body_, body_.stores[i])));
    }
    line(4, "}");
    copy_out(4, "[0]", is_number);
  }

  bool is_read(size_t load, size_t pass) const { return body_.loads[load].pattern == AccessPattern::Dense && passes_.loads(pass, load); }
  bool is_written(const BodyStore& store, size_t pass) const {
    return (store.extent == Extent::Element || store.extent == Extent::Columns) && passes_.pass_of(store.value) == pass;
  }

  void write_pass(size_t pass) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.reduces(pass, i)) continue;
      const Kind kind = body_.ops[i].reduction.kind;
      const bool is_extreme = kind == Kind::Max || kind == Kind::Min;
      const std::string neutral = is_extreme ? format("{}infinity<{}>()", kind == Kind::Max ? "-" : "", type_) : "0";
      const std::string both = is_moments(i) ? format("mean{}[row] = m2_{}[row]", leader_of_pair(body_, i), leader_of_pair(body_, i)) : "";
      line(4, format("for (long row = 0; row < count; ++row) {} = {};", both.empty() ? array_of(i) + "[row]" : both, neutral));
    }
    line(4, "for (long i = 0; i < columns; ++i) {");
    copy_in(6, "[i]", [&](size_t load) { return is_read(load, pass); });
    begin_rows(6);
    numbers_before(pass + 1);
    elements(pass);
    line(6, "}");
    copy_out(6, "[i]",
             [&](size_t store) { return body_.stores[store].extent == Extent::Element && is_written(body_.stores[store], pass); });
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (body_.stores[i].extent == Extent::Columns && is_written(body_.stores[i], pass)) reduce_column(i);
    }
    line(4, "}");
  }

  void elements(size_t pass) {
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (is_read(i, pass)) line(8, format("const {} x{} = p{}[row];", type_of_load(body_, i), i, i));
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (passes_.reads_slot(pass, i)) line(8, format("const {} v{} = k{}[i * {} + row];", type_, i, passes_.slot(i), kRowsAtOnce));
      if (passes_.computes(pass, i)) value(i);
      if (passes_.fills_slot(pass, i) && passes_.computes(pass, i))
        line(8, format("k{}[i * {} + row] = v{};", passes_.slot(i), kRowsAtOnce, i));
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (passes_.reduces(pass, i)) reduce(i);
    }
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (is_written(store, pass))
        line(8, format("r{}[row] = {};", i, store.is_over_rows() ? name_of(store.value) : converted(body_, store)));
    }
  }

  void value(size_t op) {
    const BodyOp& is = body_.ops[op];
    if (is.kind != BodyOp::Kind::OneHot) return line(8, format("const {} {};", type_, assignment(body_, op, cost_model())));
    line(8, format("const {} v{} = {};", type_, op, one_hot_of(is, "i", type_)));
  }

  // Adds column i to the numbers of rows.
  void reduce(size_t op) {
    const Kind kind = body_.ops[op].reduction.kind;
    const std::string number = array_of(op), value = name_of(body_.ops[op].args[0]);
    if (!is_of_moments(kind)) return line(8, format("{}[row] = {};", number, text_of_.combined(kind, number + "[row]", value)));
    if (leader_of_pair(body_, op) != op) return;  // the first of a pair updates both
    line(8, format("const {} d{} = {} - mean{}[row];", type_, op, value, op));
    line(8, format("mean{}[row] += d{} / (i + 1);", op, op));
    line(8, format("m2_{}[row] += d{} * ({} - mean{}[row]);", op, op, value, op));
  }

  // Adds the rows of a block to a column's result.
  void reduce_column(size_t store) {
    const size_t at = body_.loads.size() + store;
    const Kind kind = body_.stores[store].over_rows;
    line(6, "{");
    line(8, format("{}* const to = ({}*)pointers[{}] + i;", type_, type_, at));
    if (kind == Kind::Sum) {
      line(8, format("{} part = 0;", type_));
      line(8, "for (long row = 0; row < count; ++row) {");
      text_ += "#pragma clang fp reassociate(on)\n";
      line(10, format("part += r{}[row];", store));
      line(8, "}");
    } else {
      line(8, format("const {} part = {}_of<{}>(r{}, count);", type_, kind == Kind::Max ? "max" : "min", type_, store));
    }
    line(8, format("*to = {};", text_of_.combined(kind, "*to", "part")));
    line(6, "}");
  }

  const Body& body_;
  const RowPasses& passes_;
  const ReductionText text_of_;
  const std::string_view type_;
  std::string text_;
};

bool is_of_segments(const BodyOp& op) { return op.kind == BodyOp::Kind::Reduction && op.reduction.over != Reduction::Over::Row; }

}  // namespace

bool has_part_for_short_rows(const Body& body) {
  return body.by_rows && body.has_short_rows && !c10::isComplexType(body.compute) && !JoinedRows::may_be(body) &&
         !has_moments_over_rows(body) && std::none_of(body.ops.begin(), body.ops.end(), is_of_segments) &&
         std::none_of(body.loads.begin(), body.loads.end(),
                      [](const BodyLoad& load) { return load.pattern == AccessPattern::PerSegment; }) &&
         std::none_of(body.stores.begin(), body.stores.end(),
                      [](const BodyStore& store) { return store.extent == Extent::Segment || store.extent == Extent::Channels; });
}

std::string short_rows_source(const Body& body, const RowPasses& passes) { return ShortRowsWriter(body, passes).run(); }

}  // namespace hindcast::codegen::cpu
