#include "tests/whole/fuzz/generate.h"

#include <algorithm>
#include <numeric>

#include "tests/whole/fuzz/builder.h"

namespace hindcast::tests::fuzz {
namespace {

bool is_complex(at::ScalarType dtype) { return dtype == at::kComplexFloat; }

/// The promoted dtype of two operands; nothing if the generator does not mix these.
std::optional<at::ScalarType> promoted(const Type& a, const Type& b) {
  if (a.dtype == b.dtype) return a.dtype;
  if (is_complex(a.dtype) || is_complex(b.dtype)) {
    const bool both_single = (is_complex(a.dtype) ? b.dtype : a.dtype) == at::kFloat;
    return both_single ? std::optional(at::kComplexFloat) : std::nullopt;
  }
  if (a.shape.empty() != b.shape.empty()) return a.shape.empty() ? b.dtype : a.dtype;  // a tensor without dims has no say
  return c10::promoteTypes(a.dtype, b.dtype);
}

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), builder_(program_, random_, /*reckless=*/random_.percent(4)) { program_.seed = seed; }

  Program run() {
    choose_settings();
    choose_steps();
    add_first_leaves();
    const int64_t wanted = random_.between(3, 16);
    for (int64_t made = 0, tries = 0; made < wanted && tries < 300; ++tries) made += place(choose_op());
    add_loss();
    add_calls();
    return std::move(program_);
  }

 private:
  // ---- settings ----

  void choose_settings() {
    program_.verify = program_.seed % 2 == 0;
    program_.visitor = random_.percent(25);
    program_.fused = program_.seed % 3 == 0;
    program_.dynamic = !random_.percent(6);
    program_.autocast = random_.percent(6);
    program_.descend = random_.percent(40);
    program_.zero_grads = random_.pick({ZeroGrads::Not, ZeroGrads::SetToNone, ZeroGrads::SetToNone, ZeroGrads::FillWithZeros});
    const bool one_dtype = program_.autocast || random_.percent(60);
    dtypes_ = {at::kFloat};
    if (!one_dtype) {
      dtypes_ = random_.pick<std::vector<at::ScalarType>>({{at::kFloat, at::kDouble},
                                                           {at::kFloat, at::kComplexFloat},
                                                           {at::kFloat, at::kBFloat16},
                                                           {at::kDouble, at::kDouble},
                                                           {at::kFloat, at::kDouble, at::kBFloat16}});
    }
  }

  void choose_steps() {
    const int64_t kind = random_.below(4);
    const int64_t first = random_.between(1, 4);
    const bool scalars_change = random_.percent(50);
    for (int number = 0, count = static_cast<int>(random_.between(4, 6)); number < count; ++number) {
      Step step;
      step.number = number;
      if (kind == 0) step.batch = first;
      if (kind == 1) step.batch = number < 2 ? first : first + 1;
      if (kind == 2) step.batch = first + number % 2;
      if (kind == 3) step.batch = random_.between(1, 5);
      if (scalars_change) step.scalar = 0.5 + 0.25 * static_cast<double>(random_.below(6));
      program_.steps.push_back(step);
    }
  }

  Dim dim() { return {random_.pick<int64_t>({1, 2, 3, 3, 4, 4, 5}), false}; }

  Shape leaf_shape(bool batch) {
    Shape shape(static_cast<size_t>(random_.pick<int64_t>({0, 1, 2, 2, 2, 2, 3, 3})));
    for (Dim& d : shape) d = dim();
    if (batch && !shape.empty())
      shape[random_.percent(85) ? 0 : static_cast<size_t>(random_.below(static_cast<int64_t>(shape.size())))] = {1, true};
    return shape;
  }

  void add_first_leaves() {
    builder_.add_leaf({{1, true}, dim()}, random_.pick(dtypes_));
    builder_.add_leaf({dim(), dim()}, random_.pick(dtypes_), true);
    for (int64_t more = random_.below(3); more > 0; --more) builder_.add_leaf(leaf_shape(random_.percent(50)), random_.pick(dtypes_));
  }

  // ---- instructions ----

  int choose_op() {
    static const int total = std::accumulate(ops().begin(), ops().end(), 0, [](int sum, const Op& row) { return sum + row.weight; });
    int64_t left = random_.below(total);
    for (size_t index = 0;; ++index) {
      left -= ops()[index].weight;
      if (left < 0) return static_cast<int>(index);
    }
  }

  bool takes(const Op& row, int value) const {
    const at::ScalarType dtype = builder_.type(value).dtype;
    if (is_complex(dtype) && !(row.traits & kComplex)) return false;
    // Under autocast a value's dtype differs from its type's.
    if (program_.autocast && (row.rule == Rule::LikeBoth || row.rule == Rule::WriteRows)) return false;
    return !((row.traits & kNoHalf) && (dtype == at::kBFloat16 || program_.autocast));
  }

  int operand(const Op& row, size_t least_dims = 0, size_t most_dims = 4) {
    return builder_.find([&](int value) {
      return takes(row, value) && builder_.shape(value).size() >= least_dims && builder_.shape(value).size() <= most_dims;
    });
  }

  int64_t below_rank(int value) { return random_.below(static_cast<int64_t>(builder_.shape(value).size())); }

  /// A dimension that `fits`; -1 for none.
  template <class Fits>
  int64_t find_dim(int value, Fits&& fits) {
    const Shape& shape = builder_.shape(value);
    std::vector<int64_t> found;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (fits(shape[d])) found.push_back(static_cast<int64_t>(d));
    }
    return found.empty() ? -1 : random_.pick(found);
  }

  Shape without(Shape shape, int64_t d) {
    shape.erase(shape.begin() + d);
    return shape;
  }
  Shape with(Shape shape, int64_t d, Dim dim) {
    shape[static_cast<size_t>(d)] = dim;
    return shape;
  }

  bool finish(Instr instr, const Type& result) { return finish(instr, std::vector{result}); }
  bool finish(Instr instr, const std::vector<Type>& results) {
    for (const Type& type : results) {
      if (!is_small(type.shape)) return false;
    }
    builder_.add(std::move(instr), results);
    return true;
  }

  /// Places one instruction of this row. False: there is no operand for it.
  bool place(int index) {
    const Op& row = op(index);
    Instr instr;
    instr.op = index;
    instr.scalar = random_.pick({0.5, 1.25, 2.0, -0.75, 1.0});
    instr.scalar_changes = random_.percent(50);
    switch (row.rule) {
      case Rule::Same:
      case Rule::AlongDim:
      case Rule::LastDims:
      case Rule::Matrix:
      case Rule::Pair:
      case Rule::ToReal:
      case Rule::Cast:
      case Rule::Detach:
        return place_of_one_shape(row, instr);
      case Rule::Broadcast:
      case Rule::LikeBoth:
      case Rule::TotalOfBoth:
      case Rule::Cat:
      case Rule::Stack:
        return place_of_two(row, instr);
      case Rule::Total:
      case Rule::Classes:
      case Rule::DropDim:
      case Rule::KeepDim:
        return place_reduction(row, instr);
      case Rule::Mm:
      case Rule::Gram:
      case Rule::Linear:
      case Rule::LinearBias:
      case Rule::MatMul:
      case Rule::Conv:
        return place_product(row, instr);
      case Rule::WriteSelf:
      case Rule::WriteFrom:
      case Rule::WriteRows:
        return place_write(row, instr);
      case Rule::Hook:
      case Rule::LeafHook:
        return place_hook(row, instr);
      default:
        return place_view(row, instr);
    }
  }

  bool place_of_one_shape(const Op& row, Instr instr) {
    instr.a = operand(row, row.rule == Rule::AlongDim || row.rule == Rule::LastDims ? 1 : row.rule == Rule::Matrix ? 2 : 0);
    if (instr.a < 0) return false;
    Type type = builder_.type(instr.a);
    if (row.rule == Rule::AlongDim) instr.i = below_rank(instr.a);
    if (row.rule == Rule::Pair) return finish(instr, {type, type});
    if (row.rule == Rule::LastDims) {
      if (type.shape.back().batch) return false;
      instr.sizes = {type.shape.back()};
    }
    if (row.rule == Rule::ToReal) {
      if (!is_complex(type.dtype)) return false;
      type.dtype = at::kFloat;
    }
    if (row.rule == Rule::Cast) {
      type.dtype = random_.pick(dtypes_);
      if (is_complex(type.dtype)) return false;
      instr.k = static_cast<int64_t>(type.dtype);
    }
    return finish(instr, type);
  }

  /// Another operand for the row: an earlier value that `fits`, or a new leaf with this shape.
  template <class Fits>
  int partner(const Op& row, const Shape& shape, at::ScalarType dtype, Fits&& fits) {
    const int found = random_.percent(75) ? builder_.find([&](int value) { return takes(row, value) && fits(value); }) : -1;
    if (found >= 0) return found;
    return is_small(shape) ? builder_.add_leaf(shape, dtype) : -1;
  }

  /// A shape that broadcasts with this one.
  Shape broadcastable(Shape shape) {
    if (random_.percent(30) && !shape.empty()) shape.erase(shape.begin(), shape.begin() + below_or_zero(shape.size()) + 1);
    for (Dim& d : shape) {
      if (random_.percent(25)) d = {1, false};
    }
    return shape;
  }
  int64_t below_or_zero(size_t end) { return end == 0 ? 0 : random_.below(static_cast<int64_t>(end)); }

  bool place_of_two(const Op& row, Instr instr) {
    const bool needs_dim = row.rule == Rule::Cat || std::string_view(row.text).find("index_add") != std::string_view::npos;
    instr.a = operand(row, needs_dim ? 1 : 0, row.rule == Rule::Stack ? 3 : 4);
    if (instr.a < 0) return false;
    const Type a = builder_.type(instr.a);
    if (row.rule == Rule::Broadcast) {
      instr.b = partner(row, broadcastable(a.shape), a.dtype, [&](int value) {
        const auto shape = broadcast(a.shape, builder_.shape(value));
        return promoted(a, builder_.type(value)) && shape && is_small(*shape);
      });
      if (instr.b < 0) return false;
      if (random_.percent(30)) std::swap(instr.a, instr.b);
      const Type& b = builder_.type(instr.b);
      return finish(instr, Type{*broadcast(builder_.shape(instr.a), b.shape), *promoted(builder_.type(instr.a), b)});
    }
    instr.b = partner(row, a.shape, a.dtype, [&](int value) { return builder_.type(value) == a; });
    if (instr.b < 0) return false;
    if (row.rule == Rule::LikeBoth) return finish(instr, a);
    if (row.rule == Rule::TotalOfBoth) return finish(instr, Type{{}, a.dtype});
    Shape shape = a.shape;
    if (row.rule == Rule::Cat) {
      instr.i = below_rank(instr.a);
      shape[static_cast<size_t>(instr.i)].factor *= 2;
    } else {
      instr.i = random_.between(0, static_cast<int64_t>(shape.size()));
      shape.insert(shape.begin() + instr.i, Dim{2, false});
    }
    return finish(instr, Type{shape, a.dtype});
  }

  bool place_reduction(const Op& row, Instr instr) {
    const bool classes = row.rule == Rule::Classes;
    instr.a = operand(row, classes ? 2 : row.rule == Rule::Total ? 0 : 1, classes ? 2 : 4);
    if (instr.a < 0) return false;
    const Type a = builder_.type(instr.a);
    if (row.rule == Rule::Total || classes) return finish(instr, Type{{}, a.dtype});
    instr.i = below_rank(instr.a);
    return finish(instr, Type{row.rule == Rule::DropDim ? without(a.shape, instr.i) : with(a.shape, instr.i, {1, false}), a.dtype});
  }

  bool place_product(const Op& row, Instr instr) {
    const bool three = row.rule == Rule::Gram || row.rule == Rule::Conv;
    instr.a = operand(row, three ? 3 : row.rule == Rule::Mm || row.rule == Rule::MatMul ? 2 : 1, three ? 3 : row.rule == Rule::Mm ? 2 : 3);
    if (instr.a < 0) return false;
    const Type a = builder_.type(instr.a);
    const Dim last = a.shape.back();
    if (row.rule == Rule::Gram) return finish(instr, Type{{a.shape[0], a.shape[1], a.shape[1]}, a.dtype});
    if (row.rule == Rule::Conv) {
      if (a.shape[1].batch || last.batch) return false;
      const Dim out = dim(), width{random_.between(1, last.factor), false};
      instr.b = builder_.add_leaf({out, a.shape[1], width}, a.dtype);
      return finish(instr, Type{{a.shape[0], out, {last.factor - width.factor + 1, false}}, a.dtype});
    }
    const bool weight = row.rule == Rule::Linear || row.rule == Rule::LinearBias;
    const size_t inner = weight ? 1 : 0;
    const Dim out = dim();
    instr.b = partner(row, weight ? Shape{out, last} : Shape{last, out}, a.dtype, [&](int value) {
      const Type& type = builder_.type(value);
      return type.dtype == a.dtype && type.shape.size() == 2 && type.shape[inner] == last;
    });
    if (instr.b < 0) return false;
    const Dim made = builder_.shape(instr.b)[1 - inner];
    if (row.rule == Rule::LinearBias) instr.c = builder_.add_leaf({made}, a.dtype);
    return finish(instr, Type{with(a.shape, static_cast<int64_t>(a.shape.size()) - 1, made), a.dtype});
  }

  bool place_view(const Op& row, Instr instr) {
    instr.a = operand(row, row.rule == Rule::Unsqueeze || row.rule == Rule::Expand ? 0 : 1);
    if (instr.a < 0) return false;
    const Type a = builder_.type(instr.a);
    Shape shape = a.shape;
    const auto rank = static_cast<int64_t>(shape.size());
    const auto fixed = [](const Dim& d) { return !d.batch; };
    switch (row.rule) {
      case Rule::Transpose:
        instr.i = random_.below(rank), instr.j = random_.below(rank);
        std::swap(shape[static_cast<size_t>(instr.i)], shape[static_cast<size_t>(instr.j)]);
        break;
      case Rule::MoveDim: {
        instr.i = random_.below(rank), instr.j = random_.below(rank);
        const Dim moved = shape[static_cast<size_t>(instr.i)];
        shape.erase(shape.begin() + instr.i);
        shape.insert(shape.begin() + instr.j, moved);
        break;
      }
      case Rule::Unsqueeze:
        instr.i = random_.between(0, rank);
        shape.insert(shape.begin() + instr.i, Dim{});
        break;
      case Rule::Squeeze:
        instr.i = find_dim(instr.a, [](const Dim& d) { return d.is_one(); });
        if (instr.i < 0) return false;
        shape = without(shape, instr.i);
        break;
      case Rule::Select:
        instr.i = random_.below(rank);
        instr.j = random_.below(shape[static_cast<size_t>(instr.i)].batch ? 1 : shape[static_cast<size_t>(instr.i)].factor);
        shape = without(shape, instr.i);
        break;
      case Rule::Slice: {
        instr.i = random_.below(rank);
        const Dim& d = shape[static_cast<size_t>(instr.i)];
        const int64_t size = d.factor;  // of a batch, as many as there are even for a batch of 1
        instr.j = random_.below(size), instr.k = random_.between(instr.j + 1, size);
        shape = with(shape, instr.i, {instr.k - instr.j, false});
        break;
      }
      case Rule::EverySecond:
        instr.i = find_dim(instr.a, fixed);
        if (instr.i < 0) return false;
        instr.k = shape[static_cast<size_t>(instr.i)].factor;
        shape = with(shape, instr.i, {(instr.k + 1) / 2, false});
        break;
      case Rule::Expand: {
        const int64_t one = find_dim(instr.a, [](const Dim& d) { return d.is_one(); });
        const Dim wide = random_.percent(40) ? Dim{1, true} : dim();
        if (one >= 0) {
          shape = with(shape, one, wide);
        } else {
          shape.insert(shape.begin(), wide);
        }
        instr.sizes = shape;
        break;
      }
      case Rule::View:
        if (!builder_.value(instr.a).contiguous) return false;
        [[fallthrough]];
      case Rule::Reshape:
        if (!merge_or_split(shape)) return false;
        instr.sizes = shape;
        break;
      case Rule::Pick:
      case Rule::PickFirst:
        instr.i = row.rule == Rule::Pick ? random_.below(rank) : 0;
        instr.j = random_.between(1, 5);
        shape = with(shape, instr.i, {instr.j, false});
        break;
      case Rule::Unbind: {
        instr.i = find_dim(instr.a, fixed);
        if (instr.i < 0) return false;
        const int64_t pieces = shape[static_cast<size_t>(instr.i)].factor;
        return finish(instr, std::vector<Type>(static_cast<size_t>(pieces), Type{without(shape, instr.i), a.dtype}));
      }
      case Rule::Split: {
        instr.i = find_dim(instr.a, fixed);
        if (instr.i < 0) return false;
        const int64_t size = shape[static_cast<size_t>(instr.i)].factor;
        instr.j = random_.between((size + 2) / 3, size);
        std::vector<Type> pieces;
        for (int64_t done = 0; done < size; done += instr.j) {
          pieces.push_back({with(shape, instr.i, {std::min(instr.j, size - done), false}), a.dtype});
        }
        return finish(instr, pieces);
      }
      default:
        return false;
    }
    return finish(instr, Type{shape, a.dtype});
  }

  bool merge_or_split(Shape& shape) {
    const auto at = static_cast<size_t>(below_or_zero(shape.size()));
    if (random_.percent(50) && at + 1 < shape.size()) {
      if (shape[at].batch && shape[at + 1].batch) return false;
      shape[at] = {shape[at].factor * shape[at + 1].factor, shape[at].batch || shape[at + 1].batch};
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      return true;
    }
    for (const int64_t factor : {3, 2}) {
      if (shape[at].factor % factor != 0) continue;
      shape[at].factor /= factor;
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at) + (random_.percent(50) ? 0 : 1), Dim{factor, false});
      return true;
    }
    return false;
  }

  bool place_write(const Op& row, Instr instr) {
    const auto writable = [&](int value) {
      return takes(row, value) && builder_.may_write(value) && (row.rule != Rule::WriteRows || !builder_.shape(value).empty());
    };
    // Writes to views rebase histories.
    if (random_.percent(60)) instr.a = builder_.find([&](int value) { return writable(value) && builder_.value(value).view; });
    if (instr.a < 0) instr.a = builder_.find(writable);
    if (instr.a < 0) return false;
    if (random_.percent(10)) instr.when = When::OddSteps;
    if (row.rule != Rule::WriteSelf) {
      const Type a = builder_.type(instr.a);
      const bool rows = row.rule == Rule::WriteRows;
      instr.b = partner(row, rows ? a.shape : broadcastable(a.shape), a.dtype, [&](int value) {
        const Type& b = builder_.type(value);
        if (builder_.value(value).storage == builder_.value(instr.a).storage || is_complex(b.dtype) != is_complex(a.dtype)) return false;
        return rows ? b == a : broadcast(a.shape, b.shape) == a.shape;
      });
      if (instr.b < 0) return false;
    }
    builder_.add(instr, {});
    return true;
  }

  bool place_hook(const Op& row, Instr instr) {
    const bool leaf = row.rule == Rule::LeafHook;
    instr.a = builder_.find([&](int value) { return builder_.value(value).requires_grad && (!leaf || builder_.value(value).leaf); });
    if (instr.a < 0) return false;
    instr.k = random_.below(4);
    // A hook on a lasting leaf accumulates in each step, unless it is registered once.
    const bool lasting =
        std::any_of(program_.leaves.begin(), program_.leaves.end(), [&](const Leaf& l) { return l.lasting && l.value == instr.a; });
    if (lasting && !random_.percent(5)) {
      instr.when = When::FirstStep;
    } else if (random_.percent(10)) {
      instr.when = When::OddSteps;
    }
    builder_.add(instr, {});
    return true;
  }

  // ---- the end of a step ----

  int unary(const char* text, int a, Type type) {
    Instr instr;
    instr.op = find_op(text);
    instr.a = a;
    return builder_.add(instr, {std::move(type)});
  }

  int total_of(int value) {
    if (is_complex(builder_.type(value).dtype)) value = unary("at::real(a)", value, {builder_.shape(value), at::kFloat});
    return builder_.shape(value).empty() ? value : unary("a.sum()", value, {{}, builder_.type(value).dtype});
  }

  /// Values that require grad, unused ones first.
  std::vector<int> ends() {
    std::vector<int> unused, all;
    for (int value = builder_.count(); value-- > 0;) {
      if (!builder_.value(value).requires_grad) continue;
      all.push_back(value);
      if (!builder_.value(value).used && !builder_.value(value).leaf) unused.push_back(value);
    }
    return unused.empty() ? all : unused;
  }

  void add_loss() {
    const std::vector<int> found = ends();
    const size_t summed = std::min<size_t>(found.size(), static_cast<size_t>(random_.between(1, 4)));
    for (size_t i = 0; i < summed; ++i) {
      const int total = total_of(found[i]);
      if (loss_ < 0) {
        loss_ = total;
        continue;
      }
      Instr sum;
      sum.op = find_op("a + b");
      sum.a = loss_, sum.b = total;
      loss_ = builder_.add(sum, {Type{{}, c10::promoteTypes(builder_.type(loss_).dtype, builder_.type(total).dtype)}});
    }
    if (random_.percent(10)) {  // a loss times a factor, as a scaler makes it
      Instr scaled;
      scaled.op = find_op("a * s");
      scaled.a = loss_, scaled.scalar = 2, scaled.scalar_changes = true;
      loss_ = builder_.add(scaled, {builder_.type(loss_)});
    }
  }

  Layout any_layout() { return random_.pick({Layout::Contiguous, Layout::Transposed, Layout::Sliced, Layout::Expanded}); }

  Root loss() { return {loss_, random_.percent(12) ? std::optional(any_layout()) : std::nullopt}; }

  int any_with_grad() {
    return builder_.find([&](int value) { return builder_.value(value).requires_grad; });
  }

  std::vector<int> some_inputs(bool leaves_only) {
    std::vector<int> inputs;
    for (int64_t count = random_.between(1, 3); count > 0; --count) {
      const int value = builder_.find([&](int v) { return builder_.value(v).requires_grad && (builder_.value(v).leaf || !leaves_only); });
      if (value >= 0 && std::find(inputs.begin(), inputs.end(), value) == inputs.end()) inputs.push_back(value);
    }
    return inputs;
  }

  void add_calls() {
    const int64_t count = random_.pick<int64_t>({1, 1, 1, 1, 2, 2, 3});
    for (int64_t number = 0; number < count; ++number) {
      Call call;
      const bool last = number + 1 == count;
      const int64_t kind = random_.below(100);
      call.kind = kind < 75 ? Call::Kind::Backward : kind < 93 ? Call::Kind::Grad : Call::Kind::SquaredGradients;
      call.roots = {loss()};
      if (random_.percent(25)) {
        for (int64_t more = random_.between(1, 2); more > 0; --more) call.roots.push_back({any_with_grad(), any_layout()});
      }
      if (random_.percent(3)) call.roots.push_back(call.roots.front());
      if (random_.percent(2)) call.roots.front() = {any_with_grad(), std::nullopt};  // throws unless it has one element
      if (call.kind != Call::Kind::Backward || random_.percent(20)) call.inputs = some_inputs(/*leaves_only=*/random_.percent(60));
      if (call.inputs.empty()) call.kind = Call::Kind::Backward;
      call.retain_graph = last ? random_.percent(10) : random_.percent(95);
      call.create_graph = random_.percent(12);
      call.allow_unused = random_.percent(90);
      if (random_.percent(6)) call.when = When::OddSteps;
      program_.calls.push_back(call);
    }
  }

  Program program_;
  Random random_;
  Builder builder_;
  std::vector<at::ScalarType> dtypes_;
  int loss_ = -1;
};

}  // namespace

Program generate(uint64_t seed) { return Generator(seed).run(); }

}  // namespace hindcast::tests::fuzz
