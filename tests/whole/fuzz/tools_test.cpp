// The fuzzer itself: it uses every row, it can fail, it reduces failures, and it prints what it ran.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "tests/whole/fuzz/compare.h"
#include "tests/whole/fuzz/compare_functions.h"
#include "tests/whole/fuzz/function_runtime.h"
#include "tests/whole/fuzz/functions.h"
#include "tests/whole/fuzz/generate.h"
#include "tests/whole/fuzz/interpret.h"
#include "tests/whole/fuzz/ops.h"
#include "tests/whole/fuzz/print_cpp.h"
#include "tests/whole/fuzz/shrink.h"

namespace hindcast::tests::fuzz {
namespace {

// What print_program() wrote for example(): compiled here, which shows that the printer writes valid C++.
#include "tests/whole/fuzz/printed_example.inc"
#include "tests/whole/fuzz/printed_functions.inc"

Type type(Shape shape) { return {std::move(shape), at::kFloat}; }

Instr instr(const char* text, int a, int b = -1, int result = -1) {
  Instr made;
  made.op = find_op(text);
  made.a = a, made.b = b;
  if (result >= 0) made.first_result = result, made.results = 1;
  return made;
}

/// One of everything that the printer can print.
Program example() {
  const Dim batch{1, true};
  Program p;
  p.seed = 5;
  p.types = {type({{3}, {4}}),       type({batch, {4}}), type({batch, {3}}),     type({{2, true}, {3}}),
             type({{2, true}, {3}}), type({}),           type({{2, true}, {3}}), type({{2, true}, {3}})};
  p.leaves = {{0, Layout::Transposed, true, true}, {1, Layout::Contiguous, false, false}};
  p.instrs = {instr("at::linear(a, b)", 1, 0, 2),
              instr("at::cat({a, b}, i)", 2, 2, 3),
              instr("a * s", 3, -1, 4),
              instr("a.mul_(s)", 4),
              instr("TwoOutputs::apply(a)", 4, -1, 6),
              instr("a.sum()", 6, -1, 5),
              instr("watch(log, name, a)", 0),
              instr("retain(a)", 3),
              instr("replace(log, name, a, Layout(n % 2 * k))", 4)};
  p.instrs[2].scalar = 0.5, p.instrs[2].scalar_changes = true;
  p.instrs[3].scalar = 2, p.instrs[3].when = When::OddSteps;
  p.instrs[4].results = 2;
  p.instrs[6].when = When::FirstStep;
  p.instrs[8].k = 1;
  p.calls.resize(3);
  p.calls[0].kind = Call::Kind::Grad;
  p.calls[0].roots = {{5, std::nullopt}, {4, Layout::Expanded}};
  p.calls[0].inputs = {0, 2};
  p.calls[0].retain_graph = true;
  p.calls[1].kind = Call::Kind::SquaredGradients;
  p.calls[1].roots = {{5, std::nullopt}};
  p.calls[1].inputs = {0};
  p.calls[1].when = When::OddSteps;
  p.calls[2].roots = {{5, std::nullopt}};
  p.steps = {{0, 2, 1}, {1, 3, 0.25}, {2, 3, 1.5}};
  p.zero_grads = ZeroGrads::FillWithZeros;
  p.descend = true;
  p.autocast = true;
  return p;
}

/// The same with two functions.
Program example_with_functions() {
  Program p = example();
  for (size_t index : {0, 1, 2, 3}) p.instrs[index].function = 0;
  for (size_t index : {4, 5}) p.instrs[index].function = 1;
  p.leaves[0].outside = true;
  p.functions.rehearsed = true;
  p.calls.erase(p.calls.begin() + 1);
  return p;
}

TEST(Generator, MakesTheSameProgramFromASeed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(print_program(generate(seed)), print_program(generate(seed)));
  EXPECT_NE(print_program(generate(1)), print_program(generate(2)));
}

TEST(Generator, UsesEveryRowOfTheTable) {
  std::map<int, int> uses;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    for (const Instr& made : generate(seed).instrs) ++uses[made.op];
  }
  for (uint64_t seed = 1; seed <= 900; ++seed) {
    for (const Instr& made : generate_with_functions(seed).instrs) {
      if (op(made.op).weight == 0) ++uses[made.op];
    }
  }
  for (size_t index = 0; index < ops().size(); ++index) EXPECT_GE(uses[static_cast<int>(index)], 20) << ops()[index].text;
}

TEST(Generator, MakesEveryKindOfCall) {
  std::map<Call::Kind, int> kinds;
  int retained = 0, inputs = 0, several_roots = 0, layouts = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    for (const Call& call : generate(seed).calls) {
      ++kinds[call.kind];
      retained += call.retain_graph;
      inputs += call.kind == Call::Kind::Backward && !call.inputs.empty();
      several_roots += call.roots.size() > 1;
      layouts += std::any_of(call.roots.begin(), call.roots.end(), [](const Root& root) { return root.gradient > Layout::Contiguous; });
    }
  }
  EXPECT_EQ(kinds.size(), 3U);
  for (const int count : {retained, inputs, several_roots, layouts}) EXPECT_GT(count, 20);
}

TEST(Log, ShowsTheLastBitTheStridesAndTheSignOfZero) {
  const at::Tensor one = at::ones({2, 3});
  EXPECT_NE(describe(one), describe(at::nextafter(one, one * 2)));
  EXPECT_NE(describe(one), describe(one.t().contiguous().t()));
  EXPECT_NE(describe(one), describe(one.to(at::kDouble)));
  EXPECT_NE(describe(at::zeros({2})), describe(-at::zeros({2})));
  EXPECT_EQ(describe(at::full({2}, NAN)), describe(at::full({2}, NAN).neg()));
}

TEST(Compare, SeesALogThatIsLongerOrOther) {
  EXPECT_EQ(first_difference({"a", "b"}, {"a", "b"}), "");
  EXPECT_THAT(first_difference({"a", "b"}, {"a"}), testing::HasSubstr("hindcast: (the log ends here)"));
  EXPECT_THAT(first_difference({"a", "b"}, {"a", "c"}), testing::HasSubstr("stock:    b"));
}

TEST(Shrinker, LeavesOnlyWhatFails) {
  // As if every softmax that a second step runs were wrong.
  const int softmax = find_op("a.softmax(i)");
  const auto has_softmax = [&](const Program& p) {
    return p.steps.size() > 1 && std::any_of(p.instrs.begin(), p.instrs.end(), [&](const Instr& i) { return i.op == softmax; });
  };
  int shrunk = 0;
  for (uint64_t seed = 1; seed <= 400 && shrunk < 10; ++seed) {
    const Program program = generate(seed);
    if (!has_softmax(program)) continue;
    ++shrunk;
    const Program small = shrink(program, has_softmax);
    EXPECT_EQ(small.steps.size(), 2U);
    EXPECT_EQ(small.calls.size(), 1U);
    EXPECT_LE(small.instrs.size(), 6U) << print_program(small);
    EXPECT_TRUE(has_softmax(small));
    EXPECT_TRUE(interpret(small).broken_steps == 0) << print_program(small);
  }
  EXPECT_EQ(shrunk, 10);
}

TEST(Shrinker, KeepsWhatCannotBeMadeSmaller) {
  const Program program = generate(3);
  const std::string text = print_program(program);
  EXPECT_EQ(print_program(shrink(program, [&](const Program& p) { return print_program(p) == text; })), text);
}

/// Imitates a wrong engine: one hook sees a gradient that differs from stock's.
TEST(Shrinker, TakesAWrongGradientApart) {
  const int hook = find_op("watch(log, name, a)");
  const auto wrong = [&](const Program& p) {
    Program without = p;
    std::erase_if(without.instrs, [&](const Instr& i) { return i.op == hook; });
    return !first_difference(interpret(p).events, interpret(without).events).empty();
  };
  int shrunk = 0;
  for (uint64_t seed = 1; seed <= 200 && shrunk < 3; ++seed) {
    const Program program = generate(seed);
    if (!wrong(program)) continue;
    ++shrunk;
    const Program small = shrink(program, wrong);
    EXPECT_EQ(small.steps.size(), 1U);
    EXPECT_EQ(small.calls.size(), 1U);
    EXPECT_LE(small.instrs.size(), 3U) << print_program(small);
  }
  EXPECT_EQ(shrunk, 3);
}

TEST(Printer, WritesWhatIsCompiledHere) {
  std::ifstream in(HINDCAST_SOURCE_DIR "/tests/whole/fuzz/printed_example.inc");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, print_program(example())) << "If the printer changed on purpose, this is what belongs in printed_example.inc:\n"
                                            << print_program(example());
}

TEST(Printer, WritesTheProgramThatTheInterpreterRuns) {
  Log log;
  program(log);
  const Observed observed = interpret(example());
  EXPECT_EQ(first_difference(log.events(), observed.events), "");
  EXPECT_EQ(observed.broken_steps, 0);
  EXPECT_EQ(observed.throwing_calls, 0) << testing::PrintToString(observed.events);
}

TEST(Printer, WritesFunctions) {
  std::ifstream in(HINDCAST_SOURCE_DIR "/tests/whole/fuzz/printed_functions.inc");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, print_program(example_with_functions())) << "If the printer changed on purpose, this belongs in printed_functions.inc:\n"
                                                           << print_program(example_with_functions());
  for (const bool is_compiled : {false, true}) {
    const auto compiled = is_compiled ? std::optional(aot_options_of(example_with_functions())) : std::nullopt;
    Log log;
    program(log, compiled);
    const Observed observed = interpret(example_with_functions(), compiled);
    EXPECT_EQ(first_difference(log.events(), observed.events), "");
    EXPECT_EQ(observed.broken_steps + observed.throwing_calls, 0) << testing::PrintToString(observed.events);
    EXPECT_EQ(observed.functions.calls > 0, is_compiled);
  }
}

/// As if a function with a sum in it were wrong.
TEST(Shrinker, MakesFunctionsSmaller) {
  const int sum = find_op("a.sum()");
  const auto has_sum = [&](const Program& p) {
    return std::any_of(p.instrs.begin(), p.instrs.end(), [&](const Instr& i) { return i.op == sum && i.function >= 0; });
  };
  int shrunk = 0;
  for (uint64_t seed = 1; seed <= 100 && shrunk < 10; ++seed) {
    const Program program = generate_with_functions(seed);
    if (!has_sum(program)) continue;
    ++shrunk;
    const Program small = shrink(program, has_sum);
    EXPECT_EQ(functions_of(small).size(), 1U) << print_program(small);
    EXPECT_LE(functions_of(small)[0].last - functions_of(small)[0].first, 2U) << print_program(small);
  }
  EXPECT_EQ(shrunk, 10);
}

TEST(Compare, SeesAFunctionThatIsWrong) {
  Log stock, ours, zeros;
  const at::Tensor one = at::ones({2});
  for (Log* log : {&stock, &ours, &zeros}) log->note("step 0");
  stock.show("v1.grad", one), ours.show("v1.grad", one * 1.01), zeros.show("v1.grad", one), zeros.show("hook of v2", one * 0);
  EXPECT_NE(compare_functions(stock, ours, {}).text, "");
  EXPECT_EQ(compare_functions(stock, stock, {}).text, "");
  EXPECT_NE(compare_functions(stock, zeros, {}).text, "");
  EXPECT_EQ(compare_functions(stock, zeros, {.zeros_for_nothing = true}).text, "");
  EXPECT_NE(compare_functions(zeros, stock, {.zeros_for_nothing = true}).text, "");
}

TEST(Printer, MakesAFileThatNeedsNothingElse) {
  for (const std::string& text : {print_reproducer(generate(1)), print_reproducer(example_with_functions())}) {
    EXPECT_THAT(text, testing::HasSubstr("#include <hindcast/hindcast.h>\n"));
    EXPECT_THAT(text, testing::HasSubstr("void program(Log& log"));
    EXPECT_THAT(text, testing::HasSubstr("int main() {"));
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("#include \"")));
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("#pragma once")));
    EXPECT_EQ(std::count(text.begin(), text.end(), '{'), std::count(text.begin(), text.end(), '}'));
  }
}

}  // namespace
}  // namespace hindcast::tests::fuzz
