// Only along a dim of constant size: with a dynamic size, whether the slices cover the dim would depend on it.

#include "codegen/passes/slices_to_concat.h"

#include "codegen/passes/uses.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Value;
using capture::ValueId;

/// The gradient of a slice [begin, end) along `dim`; 0 elsewhere.
struct Piece {
  ValueId source;
  int64_t dim = 0, begin = 0, end = 0;
  bool is_selected = false;  // a single index was selected; `source` does not have the dim
  uint32_t maker = 0;
};

class SlicesToConcat {
 public:
  explicit SlicesToConcat(const Graph& graph) : graph_(graph), uses_(graph) {}

  Rewrite run() {
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      if (instr.kind == InstrKind::Op) {
        if (const auto piece = piece_of(instr, i)) pieces_[instr.outputs[0].index] = {*piece};
      } else if (instr.kind == InstrKind::AddGrads) {
        auto pieces = pieces_of_sum(instr, i);
        if (are_all(pieces, instr.outputs[0], i)) {
          rewrite_.rebuilt[i] = concat(instr, pieces);
          ++rewrite_.reasons[pieces[0].is_selected ? "a stack" : "a cat"];
        } else if (!pieces.empty()) {
          pieces_[instr.outputs[0].index] = std::move(pieces);
        }
      }
    }
    return std::move(rewrite_);
  }

 private:
  const Value& value(ValueId id) const { return graph_.values[id.index]; }

  // The argument's constant as an index from the start of the dim.
  static std::optional<int64_t> number(const Arg& arg, int64_t if_none, int64_t size) {
    if (arg.kind != Arg::Kind::Constant) return std::nullopt;
    if (arg.constant.isNone()) return if_none;
    if (!arg.constant.isInt()) return std::nullopt;
    const int64_t given = arg.constant.toInt();
    return std::clamp<int64_t>(given < 0 ? given + size : given, 0, size);
  }

  // slice_backward(grad, sizes, dim, start, end, step), select_backward(grad, sizes, dim, index)
  std::optional<Piece> piece_of(const Instr& instr, uint32_t i) const {
    const std::string& name = instr.op->operator_name().name;
    const bool is_selected = name == "aten::select_backward";
    if ((!is_selected && name != "aten::slice_backward") || !instr.args[0].values[0].defined()) return std::nullopt;
    const ValueId result = instr.outputs[0];
    const auto rank = static_cast<int64_t>(value(result).sizes.size());
    const auto dim = number(instr.args[2], 0, rank);
    if (!dim || *dim >= rank) return std::nullopt;
    const auto size = graph_.symbols->constant(value(result).sizes[static_cast<size_t>(*dim)]);
    if (!size) return std::nullopt;
    Piece piece{instr.args[0].values[0], *dim, 0, 0, is_selected, i};
    if (is_selected) {
      const auto index = number(instr.args[3], 0, *size);
      if (!index) return std::nullopt;
      piece.begin = *index;
      piece.end = *index + 1;
    } else {
      const auto begin = number(instr.args[3], 0, *size), end = number(instr.args[4], *size, *size), step = number(instr.args[5], 1, *size);
      if (!begin || !end || *begin >= *end || step != 1) return std::nullopt;
      piece.begin = *begin;
      piece.end = *end;
    }
    return concatenates_in_order(piece.source, result) ? std::optional(piece) : std::nullopt;
  }

  // Whether ATen's cat of such parts has the layout of the sum. For images, ATen may choose channels-last.
  bool concatenates_in_order(ValueId source, ValueId result) const {
    const Value &part = value(source), &whole = value(result);
    return part.dtype == whole.dtype && part.device == whole.device && part.strides.size() == part.sizes.size() &&
           (whole.sizes.size() < 4 || is_row_major(part));
  }

  bool is_row_major(const Value& value) const {
    int64_t stride = 1;
    for (size_t dim = value.sizes.size(); dim-- > 0;) {
      const int64_t size = graph_.symbols->hint(value.sizes[dim]);
      if (size != 1 && value.strides[dim] != stride) return false;
      stride *= std::max<int64_t>(size, 1);
    }
    return true;
  }

  // The pieces of both summands, if these have no other readers.
  std::vector<Piece> pieces_of_sum(const Instr& sum, uint32_t i) {
    std::vector<Piece> pieces;
    for (const ValueId part : sum.inputs) {
      const auto found = part.defined() ? pieces_.find(part.index) : pieces_.end();
      if (found == pieces_.end() || uses_.of_memory(part).size() != 1 || uses_.of_memory(part)[0].instr != i) return {};
      if (pieces.empty()) {
        pieces = std::move(found->second);
      } else {
        pieces.insert(pieces.end(), found->second.begin(), found->second.end());
      }
      pieces_.erase(found);
    }
    return pieces;
  }

  // Whether the pieces cover each element exactly once, and their sources are unchanged when the sum is computed.
  bool are_all(std::vector<Piece>& pieces, ValueId sum, uint32_t i) const {
    if (pieces.empty() || !is_row_major(value(sum))) return false;
    const Piece& first = pieces.front();
    const auto size = graph_.symbols->constant(value(sum).sizes[static_cast<size_t>(first.dim)]);
    int64_t covered = 0;
    for (const Piece& piece : pieces) {
      if (piece.dim != first.dim || piece.is_selected != first.is_selected) return false;
      covered += piece.end - piece.begin;
    }
    if (covered != size) return false;
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    for (size_t k = 1; k < pieces.size(); ++k) {
      if (pieces[k].begin != pieces[k - 1].end) return false;
    }
    return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return uses_.segment_of(piece.maker) == uses_.segment_of(i) && !uses_.accumulates_between(piece.maker, i);
    });
  }

  static Instr concat(const Instr& sum, const std::vector<Piece>& pieces) {
    Instr instr = sum;
    instr.kind = InstrKind::Op;
    instr.op = c10::Dispatcher::singleton().findSchemaOrThrow(pieces[0].is_selected ? "aten::stack" : "aten::cat", "");
    instr.inputs.clear();
    instr.args.resize(2);
    instr.args[0].kind = Arg::Kind::ValueList;
    for (const Piece& piece : pieces) instr.args[0].values.push_back(piece.source);
    instr.args[1].constant = pieces[0].dim;
    return instr;
  }

  const Graph& graph_;
  const Uses uses_;
  std::unordered_map<uint32_t, std::vector<Piece>> pieces_;  // by value: the pieces that it is the sum of
  Rewrite rewrite_;
};

}  // namespace

Rewrite slices_to_concat(const Graph& graph) { return SlicesToConcat(graph).run(); }

}  // namespace hindcast::codegen
