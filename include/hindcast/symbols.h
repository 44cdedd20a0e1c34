#pragma once
// Exact symbolic sizes of one traced variant.
//
// A SymbolTable interns expressions over the variant's symbols: s0, s1, ... are integers (sizes and other dynamic int fields), f0, f1, ...
// are lifted floats, u0, u1, ... are unbacked: data-dependent sizes of results. Equal expressions have equal ids: sums are kept as ordered
// linear forms and products as ordered factors, so that `(s0*s1)/s1`, `s0 + s1 - s1` and `s0` are one id. Every expression carries its
// *hint*, the value it has in the backward that is being traced.
//
// LibTorch computes with these expressions through c10::SymInt, SymFloat and SymBool, whose nodes we make (symbols_node.cpp). When the
// program asks for a concrete value, the answer is the hint's, and a Relation records it; what follows from the form alone (s0 == s0, s0 +
// 1 > s0) needs none. A variant may be used for other sizes exactly when all its relations hold there (Evaluator).
//
// An unbacked symbol has no value before a run: it gets one from the op whose result has that size. A run binds them in order, and after
// each one evaluates and checks the expressions that became known.
//
// Integer division and remainder round as C++ does on plain ints, which is what the stock engine computes with.
// One thread at a time while tracing; read-only afterwards.

#include <c10/core/Scalar.h>
#include <c10/core/SymBool.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace hindcast::capture {

struct ExprId {
  uint32_t index = 0;
  friend auto operator<=>(const ExprId&, const ExprId&) = default;
};

enum class ExprKind : uint8_t {
  // integers
  IntConst,
  IntSymbol,
  Add,
  Mul,
  Div,
  Mod,
  Min,
  Max,
  Floor,
  Ceil,
  // floats
  FloatConst,
  FloatSymbol,
  FromInt,
  FAdd,
  FSub,
  FMul,
  FDiv,
  FNeg,
  FPow,
  // truth values, 0 or 1
  Equal,
  Less,
  LessEqual,
  And,
  Or,
  Not,
};

enum class ExprType : uint8_t { Int, Float, Bool };
ExprType type_of(ExprKind kind);
/// Whether `a` is its only operand.
bool is_unary(ExprKind kind);

/// Less and LessEqual on floats are false for NaN; SameBits distinguishes -0.0 from 0.0, and NaN equals itself.
enum class Cmp : uint8_t { Equal, Less, LessEqual, SameBits };

union Number {
  int64_t i;
  double f;
};

struct Expr {
  ExprKind kind;
  bool non_negative;  // known from the form: sizes, and sums and products of such
  ExprId a, b;        // operands
  Number payload;     // value of a constant, number of a symbol
  Number hint;
};

/// `lhs cmp rhs` came out as `outcome` while tracing, and the trace depends on it.
struct Relation {
  ExprId lhs;
  Cmp cmp;
  ExprId rhs;
  bool outcome;
};

class SymbolTable : public std::enable_shared_from_this<SymbolTable> {
 public:
  static std::shared_ptr<SymbolTable> make();
  /// A copy with the same expressions and ids, to which others can be added.
  std::shared_ptr<SymbolTable> copy() const;

  // -- symbols and constants. Integer symbols (sizes among them) and float symbols are numbered separately, from 0.
  ExprId size_symbol(int64_t hint);  ///< never negative
  ExprId int_symbol(int64_t hint);   ///< any sign
  /// A data-dependent size of a result. Reading it as a plain integer always leaves a relation. After the first of these, no other integer
  /// symbol may be added.
  ExprId unbacked_symbol(int64_t hint);
  ExprId float_symbol(double hint);
  ExprId integer(int64_t value);
  ExprId real(double value);

  // -- integers
  ExprId add(ExprId a, ExprId b);
  ExprId sub(ExprId a, ExprId b);
  ExprId neg(ExprId a);
  ExprId mul(ExprId a, ExprId b);
  ExprId div(ExprId a, ExprId b);  ///< throws std::domain_error when the divisor's hint is 0
  ExprId mod(ExprId a, ExprId b);
  ExprId min(ExprId a, ExprId b);
  ExprId max(ExprId a, ExprId b);
  ExprId floor(ExprId real);
  ExprId ceil(ExprId real);

  // -- floats; `kind` is one of FAdd, FSub, FMul, FDiv, FPow. An integer operand is converted.
  ExprId real_op(ExprKind kind, ExprId a, ExprId b);
  ExprId real_neg(ExprId a);
  ExprId to_real(ExprId a);

  // -- truth values. Comparisons of an integer with a float compare floats.
  ExprId compare(Cmp cmp, ExprId a, ExprId b);
  ExprId both(ExprId a, ExprId b);
  ExprId either(ExprId a, ExprId b);
  ExprId negate(ExprId a);

  // -- decisions: the hint's answer, and a relation unless the form alone decides
  bool decide(ExprId truth);
  bool decide(Cmp cmp, ExprId a, ExprId b);
  bool equal(ExprId a, ExprId b) { return decide(Cmp::Equal, a, b); }
  bool less(ExprId a, ExprId b) { return decide(Cmp::Less, a, b); }
  /// From now on, reading a size as a number leaves no relation: the reader has to find out itself for which other sizes the answer is
  /// right.
  void allow_unguarded_reads(bool allows) { allows_unguarded_reads_ = allows; }
  /// Marks a symbol that has been the same so far: reading it as a number pins it even then.
  void set_steady(ExprId symbol) { steady_.insert(symbol.index); }
  /// Whether the expression consists of such symbols and constants.
  bool is_steady(ExprId id) const;
  /// The same; false for a symbol of another library.
  static bool is_steady(const c10::SymInt& size);
  /// Whether it is a symbol of another library, such as one of Dynamo's.
  static bool is_foreign(const c10::SymNode& node);
  /// Whether `part` is an operand somewhere in `whole`, or both are the same expression.
  bool contains(ExprId whole, ExprId part) const;
  /// The same; false unless both are symbolic.
  static bool contains(const c10::SymInt& whole, const c10::SymInt& part);
  /// The sizes that were read as numbers without a relation.
  const std::vector<ExprId>& unguarded_reads() const { return unguarded_reads_; }
  bool had_unguarded_read() const { return !unguarded_reads_.empty(); }
  /// While alive, reading sizes leaves no relation.
  class Looking {
   public:
    explicit Looking(SymbolTable& table) : table_(table), former_(table.is_looked_at_) { table.is_looked_at_ = true; }
    ~Looking() { table_.is_looked_at_ = former_; }
    Looking(const Looking&) = delete;
    Looking& operator=(const Looking&) = delete;

   private:
    SymbolTable& table_;
    const bool former_;
  };
  bool is_looked_at() const { return is_looked_at_; }
  /// Returns the hint, from now on the only allowed value.
  int64_t pin(ExprId a);
  double pin_real(ExprId a);
  /// Undoes pin_real() of the symbol, for a caller that drops everything that depended on it. False: it was not pinned.
  bool forget_pin(ExprId float_symbol);
  /// What the form alone says of `a cmp b` (integers only), without a relation.
  std::optional<bool> known(Cmp cmp, ExprId a, ExprId b) const;

  // -- between expressions and LibTorch's types. A constant becomes a plain value. Throws std::logic_error for a node
  // of another table or of another library.
  c10::SymInt make_symint(ExprId id);
  c10::SymFloat make_symfloat(ExprId id);
  c10::SymBool make_symbool(ExprId id);
  ExprId expr_of(const c10::SymInt& value);
  ExprId expr_of(const c10::SymFloat& value);
  ExprId expr_of(const c10::SymBool& value);
  ExprId expr_of(const c10::Scalar& value);  ///< complex scalars have no expression: std::logic_error
  ExprId expr_of(const c10::SymNode& node);

  // -- reading
  const Expr& expr(ExprId id) const { return exprs_[id.index]; }
  size_t size() const { return exprs_.size(); }
  ExprType type(ExprId id) const { return type_of(expr(id).kind); }
  int64_t hint(ExprId id) const { return expr(id).hint.i; }
  double real_hint(ExprId id) const { return expr(id).hint.f; }
  bool is_constant(ExprId id) const;
  /// The value of an integer constant (a truth value counts as 0 or 1).
  std::optional<int64_t> constant(ExprId id) const;
  /// The expression of a number, if the table has one.
  std::optional<ExprId> find_integer(int64_t value) const;
  size_t int_symbols() const { return int_symbols_; }
  size_t unbacked_symbols() const { return unbacked_symbols_; }
  /// Symbols that are known before a run. They come first.
  size_t backed_symbols() const { return int_symbols_ - unbacked_symbols_; }
  /// How many unbacked symbols have to be bound before the expression has a value.
  size_t bound_by(ExprId id) const;
  size_t float_symbols() const { return float_symbols_; }
  const std::vector<Relation>& relations() const { return relations_; }
  /// For a caller that has compared the traces at every relevant value of the symbols. Decisions from now on are recorded again.
  void set_relations(std::vector<Relation> relations) {
    relations_ = std::move(relations);
    recorded_.clear();
  }
  std::string str(ExprId id) const;
  /// "s0 == 1", "s0*s1 >= 4".
  std::string describe(const Relation& relation) const;

 private:
  struct Linear;   // sum of coefficient * term, plus a constant
  struct Product;  // coefficient times ordered factors
  struct Shape {   // what makes an expression itself
    ExprKind kind;
    uint32_t a, b;
    int64_t bits;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  struct ShapeHash {
    size_t operator()(const Shape& shape) const;
  };

  SymbolTable() = default;
  ExprId intern(ExprKind kind, ExprId a, ExprId b, Number payload, Number hint, bool non_negative);
  ExprId intern_int(ExprKind kind, ExprId a, ExprId b, int64_t hint);
  ExprId new_symbol(ExprKind kind, Number hint, bool non_negative, size_t& count);
  void add_terms(ExprId id, int64_t scale, Linear& sum) const;
  Linear difference(ExprId a, ExprId b) const;
  ExprId build(Linear sum);
  Product factors(ExprId id) const;
  ExprId build(const Product& product);
  std::optional<ExprId> exact_quotient(ExprId a, ExprId b);
  bool is_never_negative(const Linear& sum, int64_t at_least) const;
  void record(Cmp cmp, ExprId a, ExprId b, bool outcome);
  static Shape shape_of(const Relation& relation);
  std::string text(ExprId id, int binding) const;

  std::vector<Expr> exprs_;
  std::unordered_map<Shape, ExprId, ShapeHash> interned_;
  std::vector<Relation> relations_;
  std::unordered_set<Shape, ShapeHash> recorded_;
  std::unordered_set<uint32_t> steady_;  // symbols
  size_t int_symbols_ = 0;
  size_t unbacked_symbols_ = 0;
  size_t float_symbols_ = 0;
  std::vector<ExprId> unguarded_reads_;  // without repetition
  bool allows_unguarded_reads_ = false, is_looked_at_ = false;
};

/// Values of symbols, by number: of all, or of all up to some unbacked one.
struct Bindings {
  std::vector<int64_t> ints;
  std::vector<double> floats;
};

/// The hints of all symbols.
Bindings bindings_at_capture(const SymbolTable& symbols);

/// Values of expressions under one binding. Does not allocate when reused.
struct Env {
  std::vector<Number> values;  // by ExprId; only what the evaluator was made for, and what is bound, is filled in
  size_t unbacked = 0;         // number of bound unbacked symbols
  int64_t integer(ExprId id) const { return values[id.index].i; }
  double real(ExprId id) const { return values[id.index].f; }
};

/// Computes expressions under new bindings in one pass, in order of id. Holds no reference to the table.
class Evaluator {
 public:
  Evaluator() = default;
  /// Evaluates `needed`, the operands of relations, and all integer constants.
  Evaluator(const SymbolTable& table, const std::vector<ExprId>& needed);
  /// Evaluates every expression.
  explicit Evaluator(const SymbolTable& table);

  /// Returns false, and leaves `env` unusable, if a needed expression divides by zero or overflows, a size is negative, or the number of
  /// values is not the number of symbols. Skips what depends on symbols that `bindings` do not reach.
  bool evaluate(const Bindings& bindings, Env& env) const;
  /// Checks the relations between values that `env` has.
  bool relations_hold(const Env& env) const;
  /// Bytes held.
  size_t footprint() const { return steps_.capacity() * sizeof(Step) + checks_.capacity() * sizeof(Check); }

 private:
  struct Step {
    ExprKind kind;
    bool must_not_be_negative;
    uint32_t out, a, b;
    Number payload;
  };
  struct Check {
    ExprType type;
    Cmp cmp;
    bool outcome;
    uint32_t lhs, rhs;
  };
  Evaluator(const SymbolTable& table, std::vector<bool> needed);

  void order_by_unbacked(const SymbolTable& table);

  std::vector<Step> steps_;
  std::vector<Check> checks_;
  std::vector<size_t> step_ends_ = {0}, check_ends_ = {0};  // number of steps and checks with values, by number of bound unbacked symbols
  size_t slots_ = 0;
  size_t ints_ = 0;
  size_t floats_ = 0;
};

}  // namespace hindcast::capture

template <>
struct std::hash<hindcast::capture::ExprId> {
  size_t operator()(hindcast::capture::ExprId id) const noexcept { return std::hash<uint32_t>{}(id.index); }
};
