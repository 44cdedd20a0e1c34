// Compares every rule with the op itself: sizes are inferred once, with symbols, and evaluated at other sizes, at which the op really runs.

#include "capture/shape_rules/shape_call.h"
#include "capture/shape_rules/shape_rules.h"
#include "tests/capture/shape_rule_cases.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
#include <sstream>

namespace hindcast::capture {
namespace {

using Values = std::vector<int64_t>;

const Values kHints = {6, 4, 10, 3, 8};
const std::vector<Values> kOthers = {{9, 5, 7, 4, 11}, {5, 7, 12, 6, 6}, {13, 8, 5, 2, 9}};

/// Reads one argument of a case twice: as what the rule gets and as what the op is called with.
class Reader {
 public:
  Reader(std::string_view text, SymbolTable& table, const std::vector<ExprId>& symbols, const Values& values)
      : text_(text), table_(table), symbols_(symbols), values_(values) {}

  struct Both {
    Argument seen;
    c10::IValue real;
  };

  Both argument(const c10::Argument& declared) {
    const c10::TypePtr type = declared.real_type();
    const std::string kind = type->str();
    if (take("None")) return plain(c10::IValue());
    if (kind == "Tensor" || kind == "Tensor?") return tensor();
    if (kind == "Tensor[]") return tensor_list();
    if (kind == "Tensor?[]") return optional_tensor_list();
    if (take("true")) return plain(true);
    if (take("false")) return plain(false);
    if (take("'")) return plain(std::string(text_.substr(0, text_.size() - 1)));
    if (kind.starts_with("bool[")) return bools();
    const bool symbolic = kind.starts_with("SymInt") || kind.starts_with("Scalar") || kind.starts_with("number");
    if (text_.front() == '[') return integers(symbolic);
    if (text_.find('.') != std::string_view::npos) return plain(std::stod(std::string(text_)));
    if (kind.starts_with("float")) return plain(static_cast<double>(sum().second));
    const auto [expr, value] = sum();
    return {Argument::other(symbolic ? c10::IValue(table_.make_symint(expr)) : constant(expr)), value};
  }

 private:
  using Pair = std::pair<ExprId, int64_t>;

  Both plain(const c10::IValue& value) { return {Argument::other(value), value}; }

  c10::IValue constant(ExprId expr) {
    if (auto value = table_.constant(expr)) return *value;
    throw std::logic_error("a symbol for an argument that is a plain int: " + std::string(text_));
  }

  bool take(std::string_view token) {
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  template <class Item>
  void list(char open, char close, Item item) {
    if (!take(std::string(1, open))) throw std::logic_error("expected a list at " + std::string(text_));
    while (!take(std::string(1, close))) {
      item();
      take(",");
    }
  }

  Pair sum() {
    Pair left = product();
    while (true) {
      if (take("+"))
        left = combine(left, product(), &SymbolTable::add, [](int64_t a, int64_t b) { return a + b; });
      else if (take("-"))
        left = combine(left, product(), &SymbolTable::sub, [](int64_t a, int64_t b) { return a - b; });
      else
        return left;
    }
  }
  Pair product() {
    Pair left = atom();
    while (true) {
      if (take("*"))
        left = combine(left, atom(), &SymbolTable::mul, [](int64_t a, int64_t b) { return a * b; });
      else if (take("/"))
        left = combine(left, atom(), &SymbolTable::div, [](int64_t a, int64_t b) { return a / b; });
      else
        return left;
    }
  }
  Pair atom() {
    if (take("(")) {
      const Pair inner = sum();
      take(")");
      return inner;
    }
    if (take("s")) {
      const size_t number = static_cast<size_t>(text_.front() - '0');
      text_.remove_prefix(1);
      return {symbols_.at(number), values_.at(number)};
    }
    size_t used = 0;
    const int64_t value = std::stoll(std::string(text_), &used);
    text_.remove_prefix(used);
    return {table_.integer(value), value};
  }
  template <class OnInts>
  Pair combine(Pair a, Pair b, ExprId (SymbolTable::*op)(ExprId, ExprId), OnInts on_ints) {
    return {(table_.*op)(a.first, b.first), on_ints(a.second, b.second)};
  }

  struct Made {
    Sizes sizes;
    at::Tensor real;
  };
  Made make_tensor() {
    const char kind = text_.front();
    text_.remove_prefix(1);
    int64_t bound = 0;
    if (take("{")) {
      bound = sum().second;
      take("}");
    }
    Made made;
    Values sizes;
    list('(', ')', [&] {
      const auto [expr, size] = sum();
      made.sizes.push_back(expr);
      sizes.push_back(size);
    });
    if (kind == 'T')
      made.real = at::randn(sizes);
    else if (kind == 'U')
      made.real = at::rand(sizes);
    else if (kind == 'C')
      made.real = at::randn(sizes, at::kComplexFloat);
    else if (kind == 'B')
      made.real = at::rand(sizes).gt(0.5);
    else if (kind == 'L')
      made.real = at::randint(bound, sizes, at::kLong);
    else
      throw std::logic_error("no tensor of kind " + std::string(1, kind));
    return made;
  }
  Both tensor() {
    Made made = make_tensor();
    return {Argument::tensor(std::move(made.sizes)), std::move(made.real)};
  }
  Both tensor_list() {
    std::vector<Sizes> seen;
    std::vector<at::Tensor> real;
    list('[', ']', [&] {
      Made made = make_tensor();
      seen.push_back(std::move(made.sizes));
      real.push_back(std::move(made.real));
    });
    return {Argument::tensors(std::move(seen)), real};
  }
  Both optional_tensor_list() {
    std::vector<std::optional<IndexTensor>> seen;
    c10::List<std::optional<at::Tensor>> real;
    list('[', ']', [&] {
      if (take("None")) {
        seen.emplace_back();
        real.push_back(std::nullopt);
        return;
      }
      Made made = make_tensor();
      seen.push_back(IndexTensor{std::move(made.sizes), made.real.scalar_type()});
      real.push_back(made.real);
    });
    return {Argument::optional_tensors(std::move(seen)), real};
  }
  Both integers(bool symbolic) {
    std::vector<c10::SymInt> seen;
    Values real;
    list('[', ']', [&] {
      const auto [expr, value] = sum();
      seen.push_back(symbolic ? table_.make_symint(expr) : c10::SymInt(constant(expr).toInt()));
      real.push_back(value);
    });
    return {Argument::other(c10::IValue(c10::ArrayRef<c10::SymInt>(seen))), real};
  }
  Both bools() {
    c10::List<bool> values;
    list('[', ']', [&] { values.push_back(take("true") || !take("false")); });
    return plain(values);
  }

  std::string_view text_;
  SymbolTable& table_;
  const std::vector<ExprId>& symbols_;
  const Values& values_;
};

std::vector<std::string> split(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// One case with a table of its own. `at(values)` reads its text again for other sizes.
class Call {
 public:
  explicit Call(const std::string& text) : words_(split(text)) {
    mark_ = words_[0] == "~" || words_[0] == "!" ? words_[0][0] : ' ';
    if (mark_ != ' ') words_.erase(words_.begin());
    const size_t dot = words_[0].find('.');
    const std::string overload = dot == std::string::npos ? "" : words_[0].substr(dot + 1);
    op_ = c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + words_[0].substr(0, dot)).c_str(), overload.c_str());
    for (const int64_t hint : kHints) symbols_.push_back(table_->size_symbol(hint));
  }

  struct Arguments {
    std::vector<Argument> seen;
    torch::jit::Stack real;
  };
  Arguments at(const Values& values) const {
    Arguments all;
    const auto& declared = op_->schema().arguments();
    std::map<std::string, std::string> given;
    size_t position = 0;
    for (size_t i = 1; i < words_.size(); ++i) {
      const size_t equals = words_[i].find('=');
      if (equals == std::string::npos)
        given[declared.at(position++).name()] = words_[i];
      else
        given[words_[i].substr(0, equals)] = words_[i].substr(equals + 1);
    }
    for (const c10::Argument& argument : declared) {
      if (const auto found = given.find(argument.name()); found != given.end()) {
        auto both = Reader(found->second, *table_, symbols_, values).argument(argument);
        all.seen.push_back(std::move(both.seen));
        all.real.push_back(std::move(both.real));
        given.erase(found);
      } else {
        const c10::IValue value = argument.default_value().value_or(c10::IValue());
        all.seen.push_back(Argument::other(value));
        all.real.push_back(value);
      }
    }
    if (!given.empty()) throw std::logic_error("no argument " + given.begin()->first + " in " + words_[0]);
    return all;
  }

  std::vector<Values> run(torch::jit::Stack stack) const {
    at::manual_seed(0);
    op_->callBoxed(stack);
    std::vector<Values> sizes;
    const auto add = [&](const at::Tensor& tensor) { sizes.push_back(tensor.defined() ? tensor.sizes().vec() : Values{}); };
    for (const c10::IValue& result : stack) {
      if (result.isTensor()) add(result.toTensor());
      if (result.isTensorList()) {
        for (const at::Tensor& tensor : result.toTensorVector()) add(tensor);
      }
    }
    return sizes;
  }

  const c10::OperatorHandle& op() const { return *op_; }
  SymbolTable& table() const { return *table_; }
  char mark() const { return mark_; }

 private:
  std::vector<std::string> words_;
  char mark_;
  std::optional<c10::OperatorHandle> op_;
  std::shared_ptr<SymbolTable> table_ = SymbolTable::make();
  std::vector<ExprId> symbols_;
};

class ShapeRules : public ::testing::TestWithParam<const char*> {};

TEST_P(ShapeRules, SayWhatTheOpMakesAtEverySize) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);
  const Call call(GetParam());
  const auto traced = call.at(kHints);
  const auto real = call.run(traced.real);
  const auto inferred = infer_sizes(call.op(), traced.seen, call.table(), real);
  ASSERT_TRUE(inferred.has_value()) << "no rule";
  ASSERT_TRUE(matches_hints(*inferred, call.table(), real));

  std::string relations;
  for (const Relation& relation : call.table().relations()) relations += call.table().describe(relation) + "; ";
  std::vector<ExprId> needed;
  for (const Sizes& sizes : *inferred) needed.insert(needed.end(), sizes.begin(), sizes.end());
  const Evaluator evaluator(call.table(), needed);
  Env env;
  ASSERT_TRUE(evaluator.evaluate({kHints, {}}, env) && evaluator.relations_hold(env)) << relations;

  size_t held = 0;
  for (const Values& values : kOthers) {
    if (!evaluator.evaluate({values, {}}, env) || !evaluator.relations_hold(env)) continue;
    ++held;
    std::vector<Values> expected;
    for (const Sizes& sizes : *inferred) {
      expected.emplace_back();
      for (const ExprId size : sizes) expected.back().push_back(env.integer(size));
    }
    EXPECT_EQ(call.run(call.at(values).real), expected) << relations;
  }
  const char mark = held == kOthers.size() ? ' ' : held > 0 ? '~' : '!';
  EXPECT_EQ(call.mark(), mark) << held << " of " << kOthers.size() << " other sizes hold: " << relations;
}

INSTANTIATE_TEST_SUITE_P(Ops, ShapeRules, ::testing::ValuesIn(kShapeRuleCases), [](const auto& info) {
  std::string name =
      std::to_string(info.index) + "_" + split(info.param)[std::string_view("~!").find(info.param[0]) != std::string_view::npos];
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

std::optional<std::vector<Sizes>> infer(const Call& call) {
  const auto traced = call.at(kHints);
  return infer_sizes(call.op(), traced.seen, call.table(), call.run(traced.real));
}

std::string relations_of(const Call& call) {
  std::string all;
  for (const Relation& relation : call.table().relations()) all += (all.empty() ? "" : "; ") + call.table().describe(relation);
  return all;
}

// Nothing else would notice a misspelt row.
TEST(ShapeRule, EveryRowNamesAnOpOfLibTorch) {
  std::set<std::string> known;
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!op.name.starts_with("aten::")) continue;
    const std::string name = op.name.substr(6);
    known.insert(op.overload_name.empty() ? name : name + "." + op.overload_name);
    known.insert(name + ".*");
  }
  known.insert("cholesky");  // LibTorch 2.15 has only linalg_cholesky
  for (const auto& table : {pointwise_rules(), reduction_rules(), view_rules(), indexing_rules(), matmul_rules(), linalg_rules(),
                            convolution_rules(), norm_rules(), factory_rules()}) {
    for (const RuleRow& row : table) {
      for (const std::string_view op : words(row.ops)) EXPECT_TRUE(known.contains(std::string(op))) << op;
    }
  }
}

TEST(ShapeRule, AMaskIsNoIndex) { EXPECT_FALSE(infer(Call("index.Tensor T(s0,s1) [B(s0)]")).has_value()); }

TEST(ShapeRule, OpsWithoutARuleAreLeftToTheCaller) {
  EXPECT_FALSE(infer(Call("nonzero T(s0,s1)")).has_value());
  EXPECT_FALSE(infer(Call("masked_select T(s0,s1) B(s0,s1)")).has_value());
  EXPECT_FALSE(infer(Call("bincount L{5}(s0)")).has_value());
  EXPECT_FALSE(has_shape_rule(Call("unique_consecutive T(s0)").op()));
}

TEST(ShapeRule, WhatAnOutputIsWrittenToIsNotASize) { EXPECT_FALSE(has_shape_rule(Call("add.out T(s0) T(s0) 1 out=T(s0)").op())); }

TEST(ShapeRule, TwoExpressionsThatBroadcastAsEqualAreRelated) {
  const Call call("add.Tensor T(s0,2*s1) T(s0,s4)");  // both are 8
  ASSERT_TRUE(infer(call).has_value());
  EXPECT_EQ(relations_of(call), "s4 == 2*s1");
}

TEST(ShapeRule, AStretchedSizeIsRelatedToOne) {
  const Call call("add.Tensor T(s0) T(s1-3)");
  const auto sizes = infer(call);
  ASSERT_TRUE(sizes.has_value());
  EXPECT_EQ(call.table().str((*sizes)[0][0]), "s0");
  EXPECT_EQ(relations_of(call), "s1 - 3 == 1");
}

TEST(ShapeRule, SqueezeOfASymbolRecordsItsChoice) {
  const Call call("squeeze T(s0,s1-3)");
  const auto sizes = infer(call);
  ASSERT_TRUE(sizes.has_value());
  EXPECT_EQ((*sizes)[0].size(), 1u);
  EXPECT_EQ(relations_of(call), "s0 != 1; s1 - 3 == 1");
}

TEST(ShapeRule, AConstantSideGivesAConstantSize) {
  const Call call("mm T(s0,s1) T(4,s2)");
  const auto sizes = infer(call);
  ASSERT_TRUE(sizes.has_value());
  EXPECT_EQ(relations_of(call), "s1 == 4");
}

TEST(ShapeRule, SizesStaySimple) {
  const auto text = [](const char* line) {
    const Call call(line);
    const auto sizes = infer(call);
    std::string all;
    for (const Sizes& output : sizes.value()) {
      for (const ExprId size : output) all += (all.empty() ? "" : ", ") + call.table().str(size);
    }
    return all;
  };
  EXPECT_EQ(text("view T(s0,s1,s2) [s0,-1]"), "s0, s1*s2");
  EXPECT_EQ(text("slice.Tensor T(s0+s1,s2) 0 s0 s0+s1"), "s1, s2");
  EXPECT_EQ(text("convolution T(s0,s1,s2) T(s3,s1,3) T(s3) [1] [1] [1] false [0] 1"), "s0, s3, s2");
  EXPECT_EQ(text("convolution T(s0,s1,s2) T(s3,s1,3) T(s3) [2] [1] [1] false [0] 1"), "s0, s3, (s2 - 1)//2 + 1");
  EXPECT_EQ(text("cat [T(s0,s1),T(s0,s2)] 1"), "s0, s1 + s2");
  EXPECT_EQ(text("constant_pad_nd T(s0,s1) [1,2]"), "s0, s1 + 3");
}

}  // namespace
}  // namespace hindcast::capture
