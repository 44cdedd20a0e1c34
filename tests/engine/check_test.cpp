#include "base/check.h"

#include "base/first_line.h"
#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace hindcast::tests {
namespace {

using base::format;

struct Point {
  int x, y;
  friend std::ostream& operator<<(std::ostream& out, const Point& point) { return out << point.x << ';' << point.y; }
};

template <class Error, class Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Format, PutsValuesInTheirPlaces) {
  EXPECT_EQ(format("{} {} {} {}", 1, "two", std::string("three"), std::string_view("four")), "1 two three four");
  EXPECT_EQ(format("{} {} {} {}", true, 'c', uint8_t{200}, int8_t{-3}), "true c 200 -3");
  EXPECT_EQ(format("{} {:.2f} {:>4}|{:<{}}|", 0.1f, 0.125, 7, "ab", 4), "0.1 0.12    7|ab  |");
  EXPECT_EQ(format("no {{place}}"), "no {place}");
}

TEST(Format, ListsRangesAndStreamsTheRest) {
  EXPECT_EQ(format("{}", std::vector<int64_t>{10, 1}), "[10, 1]");
  EXPECT_EQ(format("{}", std::vector<std::string>{"a", "b"}), "[a, b]");
  EXPECT_EQ(format("{:>5}|", Point{1, 2}), "  1;2|");
}

TEST(Format, ASpecificationThatDoesNotFitIsNotAnotherError) {
  EXPECT_EQ(format("{:d}", "text").substr(0, 30), "{:d} (its values could not be ");
  EXPECT_EQ(format("{}", static_cast<const char*>(nullptr)), "(null)");
}

TEST(Check, AFailedOneSaysWhatWhereAndThatItIsOurs) {
  const std::string text = text_of<InternalError>([] { HC_CHECK(1 > 2, "value {} has no {}", 3, "use"); });
  EXPECT_NE(text.find("hindcast: value 3 has no use; check '1 > 2' failed at "), std::string::npos) << text;
  EXPECT_NE(text.find("check_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("a bug in hindcast, not in your program; please report it"), std::string::npos) << text;
}

TEST(Check, NeedsNoText) {
  EXPECT_TRUE(text_of<InternalError>([] { HC_CHECK(false); }).starts_with("hindcast: check 'false' failed at "));
}

TEST(Check, BuildsItsTextOnlyWhenItFails) {
  int built = 0;
  HC_CHECK(true, "{}", ++built);
  EXPECT_EQ(built, 0);
}

TEST(Unsupported, CarriesItsTextAlone) {
  EXPECT_EQ(text_of<Unsupported>([] { HC_UNSUPPORTED("{} input {}: nested tensor", "Mul", 0); }), "Mul input 0: nested tensor");
}

TEST(FirstLine, IsWhatAnExceptionSaysWithoutABacktrace) {
  EXPECT_EQ(base::first_line(std::runtime_error("one\nframe #0: two")), "one");
  EXPECT_EQ(base::first_line(std::runtime_error("\n  one\n")), "one");
  EXPECT_EQ(base::first_line(std::runtime_error("")), "");
}

TEST(NearestName, FindsASlipAndNothingFarther) {
  constexpr std::array<std::string_view, 3> names = {"graph", "graph_code", "perf"};
  EXPECT_EQ(base::nearest_name("grpah", names), "graph");
  EXPECT_EQ(base::nearest_name("graphcode", names), "graph_code");
  EXPECT_EQ(base::nearest_name("prf", names), "perf");
  EXPECT_EQ(base::nearest_name("something", names), "");
  EXPECT_EQ(base::nearest_name("", names), "");
  EXPECT_EQ(base::sorted_list(names), "graph, graph_code, perf");
}

}  // namespace
}  // namespace hindcast::tests
