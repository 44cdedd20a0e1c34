// base::SharedList: a list whose copies share their elements.

#include "hindcast/detail/shared_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace hindcast::base {
namespace {

using List = SharedList<std::string>;

List abc() {
  List list;
  for (const char* text : {"a", "b", "c"}) list.push_back(text);
  return list;
}
std::string joined(const List& list) {
  std::string text;
  for (const std::string& each : list) text += each;
  return text;
}

TEST(SharedList, ACopySharesUntilItIsEdited) {
  const List list = abc();
  List copy = list;
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(&copy[i], &list[i]);
  copy.edit(1) = "B";
  EXPECT_EQ(joined(copy), "aBc");
  EXPECT_EQ(joined(list), "abc");
  EXPECT_EQ(&copy[2], &list[2]);
}

TEST(SharedList, WhatNobodySharesIsEditedInPlace) {
  List list = abc();
  const std::string* const before = &list[0];
  list.edit(0) = "A";
  EXPECT_EQ(&list[0], before);
  {
    const List copy = list;
    list.edit(0) = "x";
    EXPECT_EQ(joined(copy), "Abc");
  }
  EXPECT_EQ(joined(list), "xbc");
}

TEST(SharedList, IsAddedToAndTakenFromAsAVectorIs) {
  List list = abc(), other;
  other.share(list, 2);
  EXPECT_EQ(&other.back(), &list.back());
  other.insert_front({"x", "y"});
  other.emplace_back() += "z";
  EXPECT_EQ(joined(other), "xycz");
  other.erase_all(std::set<size_t>{0, 2});
  EXPECT_EQ(joined(other), "yz");
  other.truncate(1);
  EXPECT_EQ(joined(other), "y");
  EXPECT_EQ(std::find(list.begin(), list.end(), "b") - list.begin(), 1);
  other.clear();
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(joined(list), "abc");
}

TEST(SharedList, CountsWhatAnotherHoldsNot) {
  const auto of_text = [](const std::string& text) { return text.size(); };
  const List list = abc();
  List copy = list;
  EXPECT_NEAR(static_cast<double>(copy.footprint(nullptr, of_text)), static_cast<double>(list.footprint(nullptr, of_text)), 32);
  const size_t references = copy.footprint(&list, of_text);
  EXPECT_LT(references * 2, list.footprint(nullptr, of_text));
  copy.edit(0) = "12345";
  EXPECT_GT(copy.footprint(&list, of_text), references + sizeof(std::string));
}

TEST(SharedList, CompactsToElementsOfItsOwn) {
  const auto of_text = [](const std::string&) { return size_t{0}; };
  const List list = abc();
  List copy = list;
  copy.edit(0) = "A";
  copy.compact();
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(&copy[i], &list[i]);
  EXPECT_EQ(joined(copy) + joined(list), "Abcabc");
  EXPECT_EQ(copy.footprint(&list, of_text), copy.footprint(nullptr, of_text)) << "nothing of the other list is held";
}

TEST(SharedList, CopiesOfCopiesDoNotAddUp) {
  const auto of_text = [](const std::string&) { return size_t{0}; };
  List list = abc();
  for (int i = 0; i < 1000; ++i) {
    List next = list;
    next.edit(1) = std::to_string(i);
    list = std::move(next);
  }
  EXPECT_EQ(joined(list), "a999c");
  EXPECT_LT(list.footprint(nullptr, of_text), 40 * abc().footprint(nullptr, of_text));
}

}  // namespace
}  // namespace hindcast::base
