#include "codegen/cpu/row_source.h"

#include "base/format.h"
#include "codegen/cpu/cost_model.h"
#include "codegen/cpu/reduction_text.h"
#include "codegen/cpu/short_rows.h"
#include "codegen/cpu/source.h"
#include "codegen/fuse/functors.h"
#include "codegen/fuse/row_passes.h"
#include "codegen/kernel/angles.h"
#include "codegen/kernel/body_text.h"
#include "codegen/kernel/leaf_requests.h"

#include <algorithm>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

using base::format;

// Whether the op is recomputed in a later pass rather than kept.
bool is_cheap(const BodyOp& op) { return codegen::is_cheap(op.function); }

// Elements of 4 bytes that an unrolled loop processes per iteration.
constexpr long kSeveralVectors = 32;

class Writer {
 public:
  Writer(const Body& body, bool leaves)
      : body_(body), passes_(body, is_cheap), text_of_(body), type_(type_name(body.compute)), leaves_(leaves) {}

  std::string run() {
    const bool is_in_two_parts = !leaves_ && has_part_for_short_rows(body_);
    if (is_in_two_parts) text_ = short_rows_source(body_, passes_);
    text_ +=
        format("extern \"C\" void {}(char* const* pointers, const double* scalars, long rows, const long* row_strides, long segments,\n",
               leaves_ ? "leaves" : "rows") +
        "                     const long* segment_strides, long columns, char* kept) {\n";
    if (is_in_two_parts)
      line(2, format("if (segments == 1 && columns < {}) return short_rows(pointers, scalars, rows, row_strides, columns);", kShortRow));
    text_ += scalar_lines(body_);
    if (has_moments_over_rows(body_)) text_ += "  long* const seen = (long*)kept;\n  kept += sizeof(long);\n";
    text_ += "  for (long row = 0; row < rows; ++row) {\n";
    if (has_moments_over_rows(body_)) line(4, format("const {} share = {}(1) / ({})++*seen;", type_, type_, type_));
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (body_.loads[i].pattern != AccessPattern::Broadcast) continue;
      const auto place = format("*(const {}*)(pointers[{}] + row * row_strides[{}])", type_name(body_.loads[i].type), i, i);
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
      line(4, format("*({}*)(pointers[{}] + row * row_strides[{}]) = {};", type_name(body_.stores[i].type), at, at,
                     converted(body_, body_.stores[i])));
    }
    return text_ + "  }\n}\n";
  }

 private:
  using Kind = Reduction::Kind;
  using Over = Reduction::Over;

  void line(int indent, const std::string& text) { text_ += std::string(static_cast<size_t>(indent), ' ') + text + "\n"; }

  bool reduces(size_t pass, size_t op, Over over) const { return passes_.reduces(pass, op) && body_.ops[op].reduces(over); }
  bool reduces_segment(size_t pass, size_t op) const { return body_.ops[op].reduces(Over::Segment) && passes_.computes(pass, op); }

  void numbers_of_row(size_t pass) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.is_of_rows(i) || body_.ops[i].reduces_row()) continue;
      if (passes_.pass_of(i) == pass) line(4, format("const {} {};", type_, assignment(body_, i, cost_model())));
    }
  }

  void numbers_of_segment(size_t pass, bool behind) {
    for (size_t i = 0; i < body_.loads.size() && !behind; ++i) {
      if (body_.loads[i].pattern != AccessPattern::PerSegment || !passes_.loads(pass, i)) continue;
      line(6, load_from(body_, i, "*" + place("const ", i, type_name(body_.loads[i].type))));
    }
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.is_of_segments(i) || !passes_.computes(pass, i) || passes_.is_behind_segment(i) != behind) continue;
      if (!body_.ops[i].reduces(Over::Segment)) line(6, format("const {} {};", type_, assignment(body_, i, cost_model())));
    }
  }

  // Adds a segment's numbers to the reductions over segments.
  void reduce_segments(size_t pass) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (reduces(pass, i, Over::Segments)) line(6, text_of_.add_number(i));
    }
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (store.extent != Extent::Channels || passes_.pass_of(store.value) != pass) continue;
      const std::string to = "*" + place("", body_.loads.size() + i, type_);
      line(6, store.over_rows == Kind::Sum ? format("{} += {};", to, name_of(store.value))
                                           : format("{} = {};", to, text_of_.combined(store.over_rows, to, name_of(store.value))));
    }
  }

  void write_pass(size_t pass) {
    std::vector<size_t> of_elements;  // reductions of elements, over the row and over a segment
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!passes_.reduces(pass, i)) continue;
      if (reduces(pass, i, Over::Row)) of_elements.push_back(i);
      begin_reduction(4, i);
    }
    line(4, "for (long segment = 0; segment < segments; ++segment) {");
    numbers_of_segment(pass, false);
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (!reduces_segment(pass, i)) continue;
      of_elements.push_back(i);
      begin_reduction(6, i);
    }
    pointers(pass);
    write_loops(pass, of_elements);
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (reduces_segment(pass, i)) end_reduction(6, i);
    }
    numbers_of_segment(pass, true);
    reduce_segments(pass);
    line(4, "}");
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (passes_.reduces(pass, i)) end_reduction(4, i);
    }
  }

  // The loops over a segment's elements.
  void write_loops(size_t pass, const std::vector<size_t>& reductions) {
    const Angles angles = angles_of_pass(pass);
    // A sum in one variable loses a bit each time its length doubles, so blocks are summed first.
    const bool in_blocks = !reductions.empty() || !angles.empty();
    if (in_blocks) {
      text_ += block_lines("      ", "columns", kBlockLength);
      write_lines(6, reductions, &ReductionText::begin_block);
    }
    if (!angles.empty()) {
      look_at(pass, angles);
      line(6, "if (!far) {");
      loop(pass, reductions, true, true);
      line(6, "} else {");
    }
    loop(pass, reductions, in_blocks, false);
    if (!angles.empty()) line(6, "}");
    if (in_blocks) {
      write_lines(6, reductions, &ReductionText::end_block);
      line(6, "}");
    }
  }

  void begin_reduction(int indent, size_t op) { write_lines(indent, {op}, &ReductionText::begin); }
  void end_reduction(int indent, size_t op) { write_lines(indent, {op}, &ReductionText::end); }
  void write_lines(int indent, const std::vector<size_t>& reductions, std::string (ReductionText::*text)(size_t) const) {
    for (const size_t op : reductions) {
      const std::string one = (text_of_.*text)(op);
      if (!one.empty()) line(indent, one);
    }
  }

  // The angles that one pass computes, and all angles that it loads.
  Angles angles_of_pass(size_t pass) const {
    Angles angles = angles_of(body_, [&](size_t op) { return is_of_elements(pass, op); });
    angles.loads.clear();
    for (const size_t load : angles_of(body_).loads) {
      if (passes_.loads(pass, load) || body_.loads[load].pattern == AccessPattern::Broadcast) angles.loads.push_back(load);
    }
    return angles;
  }

  void look_at(size_t pass, const Angles& angles) {
    line(6, "int far = 0;");
    for (const uint32_t load : angles.loads) {
      if (body_.loads[load].pattern != AccessPattern::Dense)
        text_ += "      " + far_line(body_, {Operand::Kind::Load, load}, format("x{}", load));
    }
    for (const std::string& bound : angles.bounds) text_ += "      " + far_line(body_, bound);
    line(6, "for (long i = begin; i < end; ++i) {");
    for (const uint32_t load : angles.loads) {
      if (body_.loads[load].pattern == AccessPattern::Dense)
        text_ += "        " + far_line(body_, {Operand::Kind::Load, load}, format("p{}[i]", load));
    }
    if (!angles.results.empty()) {
      const Ingredients parts = ingredients_of(body_, angles.results, [&](size_t op) { return is_of_elements(pass, op); });
      for (size_t i = 0; i < body_.loads.size(); ++i) {
        if (parts.loads[i]) load(pass, i);
      }
      for (size_t i = 0; i < body_.ops.size(); ++i) {
        if (parts.ops[i]) value(pass, i, true);
      }
      for (const Operand angle : angles.results) text_ += "        " + far_line(body_, angle, name_of(angle));
    }
    line(6, "}");
  }

  // Clang's unrolled loop fills several vectors per iteration and processes the remainder element by element, which is most of a short
  // segment.
  // So the remainder has a second loop, with one vector per iteration.
  void loop(size_t pass, const std::vector<size_t>& reductions, bool in_blocks, bool near) {
    const std::string begin = in_blocks ? "begin" : "0", end = in_blocks ? "end" : "columns";
    if (!passes_.has_segments()) return loop(pass, reductions, begin, end, near, "");
    line(6, format("const long whole = {} + ({} - {}) / {} * {};", begin, end, begin, kSeveralVectors, kSeveralVectors));
    loop(pass, reductions, begin, "whole", near, "");
    loop(pass, reductions, "whole", end, near, " interleave_count(1)");
  }

  void loop(size_t pass, const std::vector<size_t>& reductions, const std::string& begin, const std::string& end, bool near,
            const char* interleaving) {
    // Nothing that is written overlaps anything that is read, except what the same iteration reads.
    text_ += format("#pragma clang loop vectorize(assume_safety){}\n", interleaving);
    line(6, format("for (long i = {}; i < {}; ++i) {{", begin, end));
    elements(pass, near);
    for (const size_t op : reductions) text_ += text_of_.element(op);
    line(6, "}");
  }

  void pointers(size_t pass) {
    for (size_t i = 0; i < body_.loads.size(); ++i) {
      if (body_.loads[i].pattern == AccessPattern::Dense && passes_.loads(pass, i))
        pointer("const ", "p", i, i, type_name(body_.loads[i].type));
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
      if (slot == RowPasses::kNone || !(passes_.reads_slot(pass, i) || passes_.fills_slot(pass, i))) continue;
      line(6, format("{}* k{} = ({}*)kept + ({} * segments + segment) * columns;", type_, slot, type_, slot));
    }
  }

  void pointer(const char* constant, const char* name, size_t i, size_t at, std::string_view type) {
    line(6, format("{}{}* {}{} = {};", constant, type, name, i, place(constant, at, type)));
  }

  // The pointer to the start of the segment.
  static std::string place(const char* constant, size_t at, std::string_view type) {
    return format("({}{}*)(pointers[{}] + row * row_strides[{}] + segment * segment_strides[{}])", constant, type, at, at, at);
  }

  bool writes(const BodyStore& store, size_t pass) const {
    return (store.extent == Extent::Element || store.extent == Extent::Columns) && passes_.pass_of(store.value) == pass;
  }

  bool is_of_elements(size_t pass, size_t op) const { return passes_.computes(pass, op) && !passes_.is_of_segments(op); }

  void load(size_t pass, size_t i) {
    if (body_.loads[i].pattern == AccessPattern::Dense && passes_.loads(pass, i)) line(8, load_from(body_, i, format("p{}[i]", i)));
  }

  void value(size_t pass, size_t i, bool near) {
    if (passes_.reads_slot(pass, i)) line(8, format("const {} v{} = k{}[i];", type_, i, passes_.slot(i)));
    if (!is_of_elements(pass, i)) return;
    const BodyOp& op = body_.ops[i];
    if (op.kind == BodyOp::Kind::OneHot) {
      line(8, format("const {} v{} = {};", type_, i, one_hot_of(op, "segment * columns + i", type_)));
    } else {
      line(8, format("const {} {};", type_, assignment(body_, i, cost_model(), near)));
    }
  }

  void elements(size_t pass, bool near) {
    for (size_t i = 0; i < body_.loads.size(); ++i) load(pass, i);
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      value(pass, i, near);
      if (is_of_elements(pass, i) && passes_.fills_slot(pass, i)) line(8, format("k{}[i] = v{};", passes_.slot(i), i));
    }
    size_t leaf = 0;
    for (size_t i = 0; i < body_.stores.size(); ++i) {
      const BodyStore& store = body_.stores[i];
      if (writes(store, pass)) {
        if (store.extent == Extent::Columns) {
          text_ += text_of_.column(i);
        } else {
          text_ += store_lines(body_, i, leaf, leaves_, "        ");
        }
      }
      leaf += store.leaves;
    }
  }

  const Body& body_;
  const RowPasses passes_;
  const ReductionText text_of_;
  const std::string_view type_;
  const bool leaves_;
  std::string text_;
};

}  // namespace

size_t row_scratch(const Body& body) { return body.by_rows ? RowPasses(body, is_cheap).slots() : 0; }

bool is_written_last(const Body& body, size_t store) {
  const RowPasses passes(body, is_cheap);
  return body.stores[store].extent == Extent::Element && passes.pass_of(body.stores[store].value) + 1 == passes.count();
}

std::string rows_source(const Body& body) { return Writer(body, false).run() + (has_leaves(body) ? "\n" + Writer(body, true).run() : ""); }

}  // namespace hindcast::codegen::cpu
