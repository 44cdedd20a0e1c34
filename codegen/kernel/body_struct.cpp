#include "codegen/kernel/body_struct.h"

#include "base/check.h"
#include "base/format.h"
#include "codegen/fuse/functors.h"
#include "codegen/kernel/angles.h"
#include "codegen/kernel/body_text.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

namespace hindcast::codegen {
namespace {

using base::format;
using Kind = Reduction::Kind;
using Over = Reduction::Over;

std::string space(size_t count) { return std::string(count, ' '); }
std::string index(size_t number) { return format("Index<{}>()", number); }

std::string indices(const std::vector<size_t>& numbers) {
  std::string list;
  for (const size_t number : numbers) list += format("{}{}", list.empty() ? "" : ", ", number);
  return format("Indices<{}>", list);
}

std::string_view name_of_kind(Kind kind) {
  switch (kind) {
    case Kind::Sum:
      return "Sum";
    case Kind::Max:
      return "Max";
    case Kind::Min:
      return "Min";
    case Kind::Mean:
      return "Mean";
    case Kind::M2:
      return "M2";
    default:
      break;
  }
  HC_CHECK(false, "a softmax's pair over rows");
  return "";
}

// Reductions of a pass that are of one kind, by the ops that lead them: the first op of a pair has the number of both.
class Reductions {
 public:
  Reductions(const Body& body, const std::vector<size_t>& ops) : body_(body), ops_(ops) {
    std::copy_if(ops.begin(), ops.end(), std::back_inserter(leaders_), [&](size_t op) { return leader_of_pair(body, op) == op; });
  }
  const std::vector<size_t>& ops() const { return ops_; }
  const std::vector<size_t>& leaders() const { return leaders_; }
  size_t number_of(size_t leader) const {
    return static_cast<size_t>(std::find(leaders_.begin(), leaders_.end(), leader) - leaders_.begin());
  }

  // `Types<SumOf<float>, MomentsOf<float>>`.
  std::string types() const {
    std::string list;
    for (const size_t op : leaders_) {
      const Kind kind = body_.ops[op].reduction.kind;
      const std::string_view of = is_of_moments(kind) ? "Moments" : is_of_powers(kind) ? "Powers" : name_of_kind(kind);
      list += format("{}{}Of<{}>", list.empty() ? "" : ", ", of, type_name(body_.compute));
    }
    return format("Types<{}>", list);
  }
  // The op's result. `reduced`: the function of `at` that returns what a reduction has reduced.
  std::string result(size_t op, std::string_view reduced) const {
    const std::string number = format("at.{}({})", reduced, index(number_of(leader_of_pair(body_, op))));
    switch (body_.ops[op].reduction.kind) {
      case Kind::Mean:
        return format("mean_of({})", number);
      case Kind::M2:
        return number + ".m2";
      case Kind::Largest:
        return number + ".largest";
      case Kind::Powers:
        return format("sum_of_powers({})", number);
      default:
        return number;
    }
  }

 private:
  const Body& body_;
  const std::vector<size_t> ops_;
  std::vector<size_t> leaders_;
};

class Writer {
 public:
  Writer(const Body& body, const BodyStyle& style)
      : body_(body),
        style_(style),
        by_segments_(style.by_segments),
        has_row_(body.by_rows || style.by_blocks),
        passes_(body, style.is_cheap),
        type_(type_name(body.compute)) {}

  std::string run(const std::string& name) {
    text_ = format("struct {} {{\n{}", name, types());
    body_.by_rows ? write_rows() : write_elements();
    return text_ + "};\n\n";
  }

 private:
  std::string types() const {
    std::string loads, all_stores;
    const auto add = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
    for (const BodyLoad& load : body_.loads) {
      const char* const along = load.pattern == AccessPattern::Broadcast    ? ", Along::Broadcast"
                                : load.pattern == AccessPattern::PerSegment ? ", Along::PerSegment"
                                : load.counts                               ? ", Along::Counts"
                                                                            : "";
      add(loads, format("Load<{}{}>", type_name(load.type), along));
    }
    for (const std::string& store : stores()) add(all_stores, store);
    std::string text = format(
        "  using Compute = {};\n"
        "  using Real = {};\n"
        "  using Loads = Types<{}>;\n"
        "  using Stores = Types<{}>;\n"
        "  static constexpr int kScalars = {};\n",
        type_, type_name(c10::toRealValueType(body_.compute)), loads, all_stores, body_.scalars);
    if (const auto& product = body_.product) {
      text += format("  using Product = {};\n  static constexpr bool kIsATransposed = {}, kIsBTransposed = {};\n", type_name(product->type),
                     product->is_a_transposed, product->is_b_transposed);
    }
    return text;
  }

  void write_elements() {
    if (has_row_) {
      text_ += "  struct Row {\n" + fields_of_row() + "  };\n";
      begin_of_row();
    }
    begin_function("element", parameters_of_element());
    for (uint32_t i = 0; i < body_.scalars && !has_row_; ++i) fetch_scalar(i);
    for (const size_t load : loads_that([&](size_t load) { return !has_row_ || is_dense(load); })) fetch_load(load);
    if (body_.product) line(format("const {} product = at.product();", type_));
    for (size_t i = 0; i < body_.ops.size(); ++i) write_op(i);
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      fetch(body_.stores[i].value);
      line(format("at.store({}, {});", index(i), converted(body_, body_.stores[i])));
    }
    end_function(2);
    if (style_.by_blocks && !body_.product) check_angles(2, angles_of(body_));
  }
  void fetch_scalar(uint32_t scalar) { line(format("const {} s{} = at.scalar({});", type_, scalar, scalar)); }
  void fetch_load(size_t load) { line(load_from(body_, load, format("at.load({})", index(load)))); }
  std::string parameters_of_element() const {
    return by_segments_ ? "const Row& row, const Segment& segment, " : has_row_ ? "const Row& row, " : "";
  }

  void write_rows() {
    text_ += format("  static constexpr int kKept = {};\n", passes_.slots());
    if (style_.by_blocks) {
      text_ += format("  static constexpr bool kGoesBySegments = {}, kHasNumbersOfSegments = {};\n", by_segments_, passes_.has_segments());
    }
    text_ += "  struct Row {\n" + fields_of_row() + "  };\n";
    if (style_.has_short_rows) numbers_of_several_rows();
    begin_of_row();
    std::string passes;
    for (size_t pass = 0; pass < passes_.count(); ++pass) {
      write_pass(pass);
      passes += format("{}Pass{}", passes.empty() ? "" : ", ", pass);
    }
    text_ += format("  using Passes = Types<{}>;\n", passes);
    end_of_row();
  }

  std::vector<std::string> stores() const {
    std::vector<std::string> types;
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      const std::string_view type = type_name(store.type);
      const auto over = [&] { return format("OverRows::{}", name_of_kind(store.over_rows)); };
      switch (store.extent) {
        case Extent::Row:
          types.push_back(format("RowStore<{}>", type));
          break;
        case Extent::Columns: {
          const auto m2 = store.over_rows == Kind::Mean ? m2_beside(body_, i) : std::nullopt;
          types.push_back(m2 ? format("ColumnsStore<{}, {}, {}>", type, over(), *m2) : format("ColumnsStore<{}, {}>", type, over()));
          break;
        }
        case Extent::Channels:
          types.push_back(format("ChannelsStore<{}, {}>", type, over()));
          break;
        default:
          types.push_back(store.leaves == 0 ? format("Store<{}>", type) : format("Store<{}, {}>", type, store.leaves));
      }
    }
    return types;
  }

  template <class Takes>
  std::vector<size_t> loads_that(Takes takes) const {
    std::vector<size_t> loads;
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (takes(i)) loads.push_back(i);
    }
    return loads;
  }
  template <class Takes>
  std::vector<size_t> ops_that(Takes takes) const {
    std::vector<size_t> ops;
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (takes(i)) ops.push_back(i);
    }
    return ops;
  }
  std::vector<size_t> stores_of(size_t pass, Extent extent) const {
    std::vector<size_t> stores;
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (body_.stores[i].extent == extent && passes_.pass_of(body_.stores[i].value) == pass) stores.push_back(i);
    }
    return stores;
  }
  static Operand operand_of_load(size_t load) { return {Operand::Kind::Load, static_cast<uint32_t>(load)}; }
  bool is_broadcast(size_t load) const { return body_.loads[load].pattern == AccessPattern::Broadcast; }
  bool is_dense(size_t load) const { return body_.loads[load].pattern == AccessPattern::Dense; }
  bool is_of_rows(size_t op) const { return body_.by_rows && passes_.is_of_rows(op); }
  bool is_of_elements(size_t pass, size_t op) const { return passes_.computes(pass, op) && !(by_segments_ && passes_.is_of_segments(op)); }
  bool is_per_segment(size_t load) const { return body_.loads[load].pattern == AccessPattern::PerSegment; }

  std::string fields_of_row() const {
    std::string fields;
    for (uint32_t i = 0; i < body_.scalars; ++i) fields += format("    {} s{};\n", type_, i);
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (is_broadcast(i)) fields += format("    {} x{};\n", type_of_load(body_, i), i);
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (is_of_rows(i)) fields += format("    {} v{};\n", type_, i);
    }
    return fields;
  }

  // By row, so that vectors of rows load and store them. Scalars and loads are read anew.
  void numbers_of_several_rows() {
    const auto numbers = ops_that([&](size_t op) { return is_of_rows(op); });
    const auto loads = loads_that([&](size_t load) { return is_broadcast(load); });
    text_ += "  template <int kRows>\n  struct SeveralRows {\n";
    for (const size_t op : numbers) text_ += format("    {} v{}[kRows];\n", type_, op);
    text_ += "    template <class At>\n    HC_DEVICE_MEMBER Row get(const At& at, long number) const {\n      Row row;\n";
    for (uint32_t i = 0; i < body_.scalars; ++i) text_ += format("      row.s{} = at.scalar({});\n", i, i);
    for (const size_t load : loads)
      text_ += format("      {}\n      row.x{} = x{};\n", load_from(body_, load, format("at.load({})", index(load))), load, load);
    for (const size_t op : numbers) text_ += format("      row.v{} = v{}[number];\n", op, op);
    text_ += "      return row;\n    }\n    HC_DEVICE_MEMBER void set(const Row& row, long number) {\n";
    for (const size_t op : numbers) text_ += format("      v{}[number] = row.v{};\n", op, op);
    text_ += "    }\n  };\n";
    std::vector<size_t> stores;
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (body_.stores[i].extent == Extent::Row) stores.push_back(i);
    }
    text_ += format("  using RowLoads = {};\n  using RowStores = {};\n", indices(loads), indices(stores));
  }

  // Functions are written as lines that compute names, and before them lines that fetch the names of the row and the segment that they
  // read.
  void begin_function(const std::string& name, const std::string& parameters = "", std::string_view result = "void") {
    head_ = format("template <class At>\nstatic HC_DEVICE_MEMBER {} {}({}const At& at) {{\n", result, name, parameters);
    fetched_.clear();
    fetches_.clear();
    lines_.clear();
  }
  void end_function(size_t indent) {
    const std::string all = head_ + fetches_ + lines_ + "}\n", margin = space(indent);
    for (size_t at = 0; at < all.size();) {
      const size_t end = all.find('\n', at) + 1;
      text_ += margin + all.substr(at, end - at);
      at = end;
    }
  }
  void line(const std::string& text) { lines_ += "  " + text + "\n"; }
  void fetch(Operand operand) {
    if (!has_row_) return;
    const std::string name = codegen::name_of(operand);
    const bool is_load = operand.kind == Operand::Kind::Load, is_result = operand.kind == Operand::Kind::Result;
    const bool is_of_row = operand.kind == Operand::Kind::Scalar ||
                           (is_load && body_.loads[operand.index].pattern == AccessPattern::Broadcast) ||
                           (is_result && is_of_rows(operand.index));
    const bool is_of_segment =
        by_segments_ && ((is_load && is_per_segment(operand.index)) || (is_result && passes_.is_of_segments(operand.index)));
    if ((!is_of_row && !is_of_segment) || !fetched_.insert(name).second) return;
    fetches_ += format("  const auto {} = {}.{};\n", name, is_of_row ? "row" : "segment", name);
  }
  // The name is computed here, not fetched.
  void is_here(const std::string& name) { fetched_.insert(name); }
  void write_op(size_t op, bool near = false) {
    const BodyOp& of = body_.ops[op];
    for (const Operand operand : of.args) fetch(operand);
    is_here(format("v{}", op));
    if (of.kind == BodyOp::Kind::OneHot) {
      line(format("const {} v{} = {};", type_, op, one_hot_of(of, "at.column()", type_)));
    } else {
      line(format("const {} v{} = {};", type_, op, near ? call_of(body_, op, form_of(body_, op, true, style_.costs)) : expression(op)));
    }
  }
  void read_slot(size_t op) { line(format("const {} v{} = at.kept({});", type_, op, index(passes_.slot(op)))); }
  // A sin, cos or tan has two forms, unless its angle is known to be near 0 (codegen/kernel/angles.h).
  std::string expression(size_t op) const {
    const BodyOp& of = body_.ops[op];
    const auto call = [&](std::string_view form) { return call_of(body_, op, form); };
    const bool is_of_angle = takes_angle(of.function) && of.args[0].kind != Operand::Kind::Scalar;
    const std::string_view form = form_of(body_, op, /*near=*/false, style_.costs);
    // What a row or a segment has one of is in no block that was checked.
    const bool is_per_row_or_segment = is_of_rows(op) || (by_segments_ && passes_.is_of_segments(op));
    if (!is_of_angle || form == "_near" || (style_.by_blocks && is_per_row_or_segment)) return call(form);
    const std::string is_near = style_.by_blocks ? "At::kNear" : format("is_near({})", codegen::name_of(of.args[0]));
    return format("{} ? {} : {}", is_near, call("_near"), call(form));
  }

  // Functions that return whether an angle is far: one of those that are the same for all elements, and one of an element's. `pass`: of a
  // body by rows.
  void check_angles(size_t indent, const Angles& angles, std::optional<size_t> pass = std::nullopt) {
    text_ += format("{}static constexpr AnglesToCheck kAnglesToCheck = AnglesToCheck::{};\n", space(indent),
                    angles.empty()           ? "None"
                    : angles.results.empty() ? "Loaded"
                                             : "Computed");
    if (angles.empty()) return;
    const auto write = [&](const std::string& name, auto write_checks) {
      begin_function(name, parameters_of_element(), "int");
      line("int far = 0;");
      write_checks();
      line("return far;");
      end_function(indent);
    };
    const auto is_wanted = [&](size_t load) { return std::find(angles.loads.begin(), angles.loads.end(), load) != angles.loads.end(); };
    write("far_before", [&] {
      for (const size_t load : loads_that([&](size_t load) { return is_wanted(load) && !is_dense(load); })) {
        fetch(operand_of_load(load));
        line(far_line(body_, operand_of_load(load)));
      }
      if (!angles.bounds.empty()) fetch_operands_of_bounds();
      for (const std::string& bound : angles.bounds) line(far_line(body_, bound));
    });
    write("far", [&] {
      const Ingredients parts = ingredients_of(body_, angles.results, [&](size_t op) { return !pass || is_of_elements(*pass, op); });
      for (const size_t load : loads_that([&](size_t load) { return is_dense(load) && (is_wanted(load) || parts.loads[load]); })) {
        fetch_load(load);
        if (is_wanted(load)) line(far_line(body_, operand_of_load(load)));
      }
      // The near forms: if one of them gets a far angle and returns a wrong value, that angle itself has been found to be far.
      for (const size_t op : ops_that([&](size_t op) { return parts.ops[op]; })) {
        if (pass && passes_.reads_slot(*pass, op)) {
          read_slot(op);
        } else if (!pass || is_of_elements(*pass, op)) {
          write_op(op, /*near=*/true);
        }
      }
      for (const Operand angle : angles.results) {
        fetch(angle);
        line(far_line(body_, angle));
      }
    });
  }
  // What a bound of angles may read.
  void fetch_operands_of_bounds() {
    for (uint32_t i = 0; i < body_.scalars; ++i) fetch({Operand::Kind::Scalar, i});
    for (const size_t load : loads_that([&](size_t load) { return is_broadcast(load); })) fetch(operand_of_load(load));
  }
  // Of one pass of a body by rows, and all angles that it loads.
  Angles angles_of_pass(size_t pass) const {
    Angles angles = angles_of(body_, [&](size_t op) { return is_of_elements(pass, op); });
    angles.loads.clear();
    for (const size_t load : angles_of(body_).loads) {
      if (passes_.loads(pass, load) || body_.loads[load].pattern == AccessPattern::Broadcast) angles.loads.push_back(load);
    }
    return angles;
  }
  void write_result(const Reductions& reductions, size_t op, std::string_view reduced) {
    is_here(format("v{}", op));
    line(format("const {} v{} = {};", type_, op, reductions.result(op, reduced)));
  }

  void begin_of_row() {
    begin_function("begin", "Row& row, ");
    for (uint32_t i = 0; i < body_.scalars; ++i) {
      fetch_scalar(i);
      line(format("row.s{} = s{};", i, i));
      is_here(format("s{}", i));
    }
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (!is_broadcast(i)) continue;
      fetch_load(i);
      line(format("row.x{} = x{};", i, i));
      is_here(format("x{}", i));
    }
    numbers_of_row(0);
    end_function(2);
  }
  void end_of_row() {
    begin_function("end", "const Row& row, ");
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      if (body_.stores[i].extent != Extent::Row) continue;
      fetch(body_.stores[i].value);
      line(format("at.store({}, {});", index(i), converted(body_, body_.stores[i])));
    }
    end_function(2);
  }
  // Those that can be computed before the pass.
  void numbers_of_row(size_t pass) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!is_of_rows(i) || body_.ops[i].reduces_row() || passes_.pass_of(i) != pass) continue;
      write_op(i);
      line(format("row.v{} = v{};", i, i));
    }
  }

  void write_pass(size_t pass) {
    const auto reduces = [&](Over over) {
      return Reductions(body_, ops_that([&](size_t op) { return passes_.reduces(pass, op) && body_.ops[op].reduces(over); }));
    };
    const Reductions of_row = reduces(Over::Row), of_numbers = reduces(Over::Segments),
                     of_segment(body_,
                                ops_that([&](size_t op) { return body_.ops[op].reduces(Over::Segment) && passes_.computes(pass, op); }));
    text_ += format("  struct Pass{} {{\n", pass);
    text_ += format("    using Loads = {};\n    using Stores = {};\n    using Columns = {};\n",
                    indices(loads_that([&](size_t load) { return is_dense(load) && passes_.loads(pass, load); })),
                    indices(stores_of(pass, Extent::Element)), indices(stores_of(pass, Extent::Columns)));
    text_ += format("    using Reductions = {};\n", of_row.types());
    if (by_segments_) {
      text_ += format("    using SegmentReductions = {};\n    using NumberReductions = {};\n", of_segment.types(), of_numbers.types());
      write_segment(pass, of_segment, of_numbers);
    } else {
      HC_CHECK(of_segment.ops().empty() && of_numbers.ops().empty(), "numbers of segments in rows that do not go by segments");
    }
    write_element(pass, of_row, of_segment);
    begin_function("end", "Row& row, ");
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.reduces(pass, i)) continue;
      body_.ops[i].reduces(Over::Row) ? write_result(of_row, i, "reduced") : write_result(of_numbers, i, "reduced_numbers");
      line(format("row.v{} = v{};", i, i));
    }
    numbers_of_row(pass + 1);
    end_function(4);
    if (style_.by_blocks) check_angles(4, angles_of_pass(pass), pass);
    text_ += "  };\n";
  }

  void write_element(size_t pass, const Reductions& of_row, const Reductions& of_segment) {
    begin_function("element", parameters_of_element());
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (passes_.loads(pass, i) && (is_dense(i) || (is_per_segment(i) && !by_segments_))) fetch_load(i);
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      const size_t slot = passes_.slot(i);
      if (passes_.reads_slot(pass, i)) read_slot(i);
      if (!is_of_elements(pass, i)) continue;
      write_op(i);
      if (passes_.fills_slot(pass, i)) line(format("at.keep({}, v{});", index(slot), i));
    }
    const auto reduce = [&](const Reductions& reductions, std::string_view function) {
      for (const size_t op : reductions.leaders()) {
        const Operand value = body_.ops[op].args[0];
        fetch(value);
        line(format("at.{}({}, {});", function, index(reductions.number_of(op)), codegen::name_of(value)));
      }
    };
    reduce(of_row, "reduce");
    reduce(of_segment, "reduce_segment");
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (passes_.pass_of(store.value) != pass || (store.extent != Extent::Element && store.extent != Extent::Columns)) continue;
      fetch(store.value);
      if (store.extent == Extent::Element) line(format("at.store({}, {});", index(i), converted(body_, store)));
      if (store.extent == Extent::Columns && store.over_rows != Kind::M2)
        line(format("at.add_to_column({}, {});", index(i), codegen::name_of(store.value)));
    }
    end_function(4);
  }

  void write_segment(size_t pass, const Reductions& of_segment, const Reductions& of_numbers) {
    const auto loads = loads_that([&](size_t load) { return is_per_segment(load) && passes_.loads(pass, load); });
    const auto numbers = ops_that([&](size_t op) { return passes_.is_of_segments(op) && passes_.computes(pass, op); });
    text_ += "    struct Segment {\n";
    for (const size_t load : loads) text_ += format("      {} x{};\n", type_of_load(body_, load), load);
    for (const size_t op : numbers) text_ += format("      {} v{};\n", type_, op);
    text_ += "    };\n";
    const auto compute = [&](bool behind) {
      for (const size_t op : numbers) {
        if (passes_.is_behind_segment(op) != behind || body_.ops[op].reduces(Over::Segment)) continue;
        write_op(op);
        line(format("segment.v{} = v{};", op, op));
      }
    };
    begin_function("begin_segment", "const Row& row, Segment& segment, ");
    for (const size_t load : loads) {
      fetch_load(load);
      line(format("segment.x{} = x{};", load, load));
      is_here(format("x{}", load));
    }
    compute(false);
    end_function(4);
    begin_function("end_segment", "const Row& row, Segment& segment, ");
    for (const size_t op : of_segment.ops()) {
      write_result(of_segment, op, "reduced");
      line(format("segment.v{} = v{};", op, op));
    }
    compute(true);
    for (const size_t op : of_numbers.leaders()) {
      const Operand value = body_.ops[op].args[0];
      fetch(value);
      line(format("at.add_number({}, {});", index(of_numbers.number_of(op)), codegen::name_of(value)));
    }
    for (const size_t store : stores_of(pass, Extent::Channels)) {
      fetch(body_.stores[store].value);
      line(format("at.add_to_channel({}, {});", index(store), codegen::name_of(body_.stores[store].value)));
    }
    end_function(4);
  }

  const Body& body_;
  const BodyStyle style_;
  const bool by_segments_, has_row_;
  const RowPasses passes_;
  const std::string type_;
  std::string text_;
  std::string head_, fetches_, lines_;  // of the function that is being written
  std::set<std::string> fetched_;
};

}  // namespace

std::string body_struct(const Body& body, const std::string& name, const BodyStyle& style) { return Writer(body, style).run(name); }

}  // namespace hindcast::codegen
