#include "tests/whole/ops/expr.h"

#include <cctype>
#include <limits>
#include <stdexcept>

namespace hindcast::tests::ops {
namespace {

bool starts_word(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool continues_word(char c) { return starts_word(c) || std::isdigit(static_cast<unsigned char>(c)) != 0 || c == ':' || c == '.'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Expr> arguments_to_end() {
    std::vector<Expr> arguments = arguments_until('\0');
    if (at_ != text_.size()) fail("the end");
    return arguments;
  }

 private:
  std::vector<Expr> arguments_until(char end) {
    std::vector<Expr> arguments;
    if (peek() == end) return arguments;
    do arguments.push_back(argument());
    while (accept(',') || accept(';'));
    return arguments;
  }

  Expr argument() {
    const size_t start = at_;
    if (starts_word(peek())) {
      std::string keyword = word();
      if (accept('=')) {
        Expr value = sum();
        value.keyword = std::move(keyword);
        return value;
      }
      at_ = start;
    }
    return sum();
  }

  Expr sum() {
    Expr left = product();
    while (peek() == '+' || peek() == '-') left = binary(std::move(left), &Parser::product);
    return left;
  }

  Expr product() {
    Expr left = atom();
    while (peek() == '*') left = binary(std::move(left), &Parser::atom);
    return left;
  }

  Expr binary(Expr left, Expr (Parser::*right)()) {
    Expr call;
    call.kind = Expr::Kind::Call;
    call.word = text_[at_++];
    call.items.push_back(std::move(left));
    call.items.push_back((this->*right)());
    return call;
  }

  Expr atom() {
    const char c = peek();
    if (c == '[') return list();
    if (c == '"') return quoted();
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c)) != 0) return number();
    if (starts_word(c)) return word_or_call();
    fail("an argument");
  }

  Expr list() {
    Expr list;
    list.kind = Expr::Kind::List;
    expect('[');
    list.items = arguments_until(']');
    expect(']');
    return list;
  }

  Expr quoted() {
    Expr text;
    text.kind = Expr::Kind::Text;
    expect('"');
    while (at_ < text_.size() && text_[at_] != '"') text.word += text_[at_++];
    expect('"');
    return text;
  }

  Expr number() {
    std::string digits;
    if (text_[at_] == '-') digits += text_[at_++];
    if (text_.substr(at_, 3) == "inf") return at_ += 3, infinity(-1);
    while (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.' || text_[at_] == 'e' ||
                                  (text_[at_] == '-' && text_[at_ - 1] == 'e')))
      digits += text_[at_++];
    if (digits.empty() || digits == "-") fail("a number");
    Expr number;
    const bool whole = digits.find_first_of(".e") == std::string::npos;
    number.kind = whole ? Expr::Kind::Integer : Expr::Kind::Real;
    if (whole)
      number.integer = std::stoll(digits);
    else
      number.real = std::stod(digits);
    return number;
  }

  Expr word_or_call() {
    Expr expr;
    expr.word = word();
    if (expr.word == "inf") return infinity(1);
    if (!accept('(')) return expr;
    expr.kind = Expr::Kind::Call;
    expr.items = arguments_until(')');
    expect(')');
    if (accept('#')) expr.output = static_cast<int>(number().integer);
    return expr;
  }

  static Expr infinity(int sign) {
    Expr number;
    number.kind = Expr::Kind::Real;
    number.real = sign * std::numeric_limits<double>::infinity();
    return number;
  }

  std::string word() {
    std::string word;
    peek();
    while (at_ < text_.size() && continues_word(text_[at_])) word += text_[at_++];
    return word;
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "'");
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw std::invalid_argument("arguments '" + std::string(text_) + "': at '" + std::string(text_.substr(at_)) + "' expected " + expected);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<Expr> parse_arguments(std::string_view text) { return Parser(text).arguments_to_end(); }

bool mentions(const std::vector<Expr>& arguments, std::string_view word) {
  for (const Expr& argument : arguments)
    if (argument.word == word || mentions(argument.items, word)) return true;
  return false;
}

}  // namespace hindcast::tests::ops
