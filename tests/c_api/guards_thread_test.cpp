// Guards by the C interface: per thread, for the process, and the errors when they are misused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "hindcast/hindcast.h"
#include "tests/c_api/called.h"
#include "tests/support/in_child.h"

namespace hindcast::tests::c_guards_test {
namespace {

using testing::HasSubstr;

hindcast_options eager() {
  hindcast_options options;
  EXPECT_EQ(hindcast_options_init(&options, sizeof(options)), HINDCAST_OK);
  options.compiler = HINDCAST_COMPILER_EAGER;
  options.back_off = 0;
  return options;
}

bool is_taken_over() {
  const uint64_t before = hindcast::stats().backwards;
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  x.sin().sum().backward();
  EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  return hindcast::stats().backwards == before + 1;
}

TEST(CGuardsThread, OfAThreadEndsOnIt) {
  const hindcast_options options = eager();
  uint64_t guard = 0;
  ASSERT_EQ(hindcast_enable(&options, &guard), HINDCAST_OK) << hindcast_last_error();
  EXPECT_NE(guard, 0U);
  EXPECT_EQ(hindcast_active(), 1);
  EXPECT_TRUE(is_taken_over());
  std::thread([&] {
    EXPECT_EQ(hindcast_active(), 0);
    EXPECT_EQ(hindcast_disable(guard), HINDCAST_INVALID_ARGUMENT) << "as a finalizer would";
    EXPECT_THAT(hindcast_last_error(), HasSubstr("belongs to the thread that made it, which is another one; it stays"));
  }).join();
  EXPECT_TRUE(is_taken_over());
  EXPECT_EQ(hindcast_disable(guard), HINDCAST_OK);
  EXPECT_FALSE(is_taken_over());
  EXPECT_EQ(hindcast_disable(guard), HINDCAST_INVALID_ARGUMENT) << "twice";
  EXPECT_THAT(hindcast_last_error(), HasSubstr("hindcast_disable: " + std::to_string(guard) + " is no guard: it was destroyed"));
}

TEST(CGuardsThread, OfTheProcessIsForAllThreads) {
  const hindcast_options options = eager();
  uint64_t guard = 0;
  ASSERT_EQ(hindcast_enable_process(&options, &guard), HINDCAST_OK) << hindcast_last_error();
  EXPECT_TRUE(is_taken_over());
  std::thread([&] {
    EXPECT_TRUE(is_taken_over());
    EXPECT_EQ(hindcast_disable(guard), HINDCAST_OK) << "on any thread";
  }).join();
  EXPECT_FALSE(is_taken_over());
}

TEST(CGuardsThread, TheDefaultsAreThoseOfOptions) {
  uint64_t guard = 0;
  ASSERT_EQ(hindcast_enable_process(nullptr, &guard), HINDCAST_OK) << hindcast_last_error();
  EXPECT_EQ(hindcast_active(), 1);
  EXPECT_EQ(hindcast_disable(guard), HINDCAST_OK);
  hindcast_options options;
  ASSERT_EQ(hindcast_options_init(&options, sizeof(options)), HINDCAST_OK);
  EXPECT_EQ(options.size, sizeof(options));
  EXPECT_EQ(options.limit, Options().limit);
  EXPECT_EQ(options.back_off, 1);
  EXPECT_EQ(options.enabled, 1);
}

TEST(CGuardsThread, EachMistakeIsNamed) {
  uint64_t guard = 1;
  hindcast_options options = eager();
  EXPECT_EQ(hindcast_enable(&options, nullptr), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("hindcast_enable: `guard`, where the handle would go, is NULL"));
  options.limit = 0;
  EXPECT_EQ(hindcast_enable(&options, &guard), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(guard, 0U);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("limit: 0"));
  options = eager();
  options.compiler = 17;
  EXPECT_EQ(hindcast_enable_process(&options, &guard), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("compiler is 17; expected a HINDCAST_COMPILER_"));
  options = {};
  EXPECT_EQ(hindcast_enable(&options, &guard), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("the struct's size is 0; call hindcast_options_init()"));
  EXPECT_EQ(hindcast_options_init(nullptr, 8), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(hindcast_report(nullptr), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(hindcast_disable(0), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(hindcast_active(), 0);
  std::thread([] { EXPECT_STREQ(hindcast_last_error(), "") << "of this thread"; }).join();
}

TEST(CGuardsThread, StructsOfOtherAges) {
  struct Newer {
    hindcast_options known;
    uint64_t unknown;
  } newer{};
  uint64_t guard = 0;
  ASSERT_EQ(hindcast_options_init(&newer.known, sizeof(newer)), HINDCAST_OK);
  EXPECT_EQ(newer.unknown, 0U);
  ASSERT_EQ(hindcast_enable(&newer.known, &guard), HINDCAST_OK) << hindcast_last_error();
  EXPECT_EQ(hindcast_disable(guard), HINDCAST_OK);
  newer.unknown = 1;
  EXPECT_EQ(hindcast_enable(&newer.known, &guard), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(),
              HasSubstr("has a field that this hindcast does not know, at byte " + std::to_string(sizeof(hindcast_options))));
  hindcast_options older;
  std::memset(&older, 0xff, sizeof(older));  // only the size and the compiler are set
  ASSERT_EQ(hindcast_options_init(&older, offsetof(hindcast_options, dynamic)), HINDCAST_OK);
  ASSERT_EQ(hindcast_enable(&older, &guard), HINDCAST_OK) << hindcast_last_error();
  EXPECT_EQ(hindcast_disable(guard), HINDCAST_OK);
}

TEST(CGuardsThread, AChildOfAForkHasThem) {
  const hindcast_options options = eager();
  uint64_t process = 0;
  ASSERT_EQ(hindcast_enable_process(&options, &process), HINDCAST_OK);
  EXPECT_EQ(in_child([&] {
              const bool is_right = is_taken_over() && hindcast_disable(process) == HINDCAST_OK && !is_taken_over();
              return is_right ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(is_taken_over());
  EXPECT_EQ(hindcast_disable(process), HINDCAST_OK);
}

TEST(CCounters, AreTheSameAsTextAndJson) {
  const hindcast_options options = eager();
  uint64_t guard = 0;
  EXPECT_EQ(hindcast_reset(), HINDCAST_OK);
  ASSERT_EQ(hindcast_enable(&options, &guard), HINDCAST_OK);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_taken_over());
  EXPECT_EQ(hindcast_disable(guard), HINDCAST_OK);
  EXPECT_EQ(hindcast_wait(), HINDCAST_OK);
  EXPECT_THAT(text_of(&hindcast_report), HasSubstr("taken over"));
  const std::string json = text_of(&hindcast_stats_json);
  EXPECT_THAT(json, HasSubstr("\"backwards\":3"));
  EXPECT_THAT(json, HasSubstr("\"misses_by_reason\":{\"NewNode\":1}"));
  uint64_t bytes = 1;
  EXPECT_EQ(hindcast_trim(&bytes), HINDCAST_OK);
  EXPECT_EQ(hindcast_trim(nullptr), HINDCAST_OK);
  hindcast_free_text(nullptr);
}

TEST(CVersions, AreThoseOfTheBuild) {
  EXPECT_EQ(hindcast_abi_version(), 1U);
  EXPECT_EQ(std::string(hindcast_libtorch_version()).find("2."), 0U);
}

}  // namespace
}  // namespace hindcast::tests::c_guards_test
