// Records are embedded in scripts: no name and no user's text may end the script or break the JSON.

#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <string>

namespace hindcast::tests {
namespace {

using base::JsonObject;
using nlohmann::json;

const std::string kReplacement = "\xEF\xBF\xBD";

std::string read_back(const std::string& text) { return json::parse(base::json_text(text)); }

TEST(Json, TextsReadBackAsTheyWere) {
  for (const std::string text : {"", "plain", "\"quoted\" and \\ and /", "a\nb\tc\r\x01\x1f\x7f", "</script><!-- <script>",
                                 "größer ≤ 漢字 🙂", "\xE2\x80\xA8 line separator"}) {
    EXPECT_EQ(read_back(text), text);
  }
  EXPECT_EQ(read_back(std::string("a\0b", 3)), std::string("a\0b", 3));
}

TEST(Json, NothingEndsAScriptOrBeginsAComment) {
  const std::string json = base::json_text("</script><SCRIPT><!--]]>");
  EXPECT_EQ(json.find('<'), std::string::npos) << json;
  JsonObject object;
  object.add("</script>", "</script>");
  EXPECT_EQ(object.str().find('<'), std::string::npos) << object.str();
}

TEST(Json, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(read_back("a\xFFz"), "a" + kReplacement + "z");
  EXPECT_EQ(read_back("cut \xE2\x82"), "cut " + kReplacement) << "one for what begins well";
  EXPECT_EQ(read_back("\xC0\xAF"), kReplacement + kReplacement) << "an overlong form";
  EXPECT_EQ(read_back("\xED\xA0\x80"), kReplacement + kReplacement + kReplacement) << "a surrogate";
  EXPECT_EQ(read_back("\xF4\x90\x80\x80"), kReplacement + kReplacement + kReplacement + kReplacement) << "behind U+10FFFF";
  EXPECT_EQ(read_back("\xF4\x8F\xBF\xBF"), "\xF4\x8F\xBF\xBF") << "the last of all";
}

TEST(Json, EveryTextOfTwoBytesCanBeRead) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      EXPECT_TRUE(json::accept(base::json_text(text))) << first << ' ' << second;
    }
  }
}

TEST(Json, NumbersKeepTheirBits) {
  const std::vector<double> numbers = {0, -0.0, 0.1, 1e300, -5e-324, 123456789.125};
  JsonObject object;
  object.add("numbers", numbers).add("large", std::numeric_limits<uint64_t>::max()).add("small", -7).add("yes", true).add("half", 0.5F);
  const json read = json::parse(object.str());
  EXPECT_EQ(read.at("numbers").get<std::vector<double>>(), numbers);
  EXPECT_EQ(read.at("large"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(read.at("small"), -7);
  EXPECT_EQ(read.at("yes"), true);
  EXPECT_EQ(read.at("half"), 0.5);
}

TEST(Json, WhatIsNoNumberIsNull) {
  JsonObject object;
  object.add("nan", std::nan("")).add("infinite", std::vector<double>{std::numeric_limits<double>::infinity()});
  EXPECT_EQ(json::parse(object.str()), json::parse(R"({"nan": null, "infinite": [null]})"));
}

TEST(Json, ObjectsHoldListsOfObjects) {
  JsonObject inner;
  inner.add("name", "x");
  JsonObject object;
  object.add("inner", std::vector{inner, inner}).add("texts", std::vector<std::string>{"a", "<"}).add("none", std::vector<std::string>());
  EXPECT_EQ(json::parse(object.str()), json::parse(R"({"inner": [{"name": "x"}, {"name": "x"}], "texts": ["a", "<"], "none": []})"));
}

}  // namespace
}  // namespace hindcast::tests
