// Where an object comes from, and what the log `kernel_code` says about it.

#include "codegen/kernel/kernel_object.h"

#include "codegen/store/store_folder.h"
#include "tests/support/log_capture.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace hindcast::codegen {
namespace {

class Uppercase final : public KernelCompiler {
 public:
  std::string_view identity() const override { return "a compiler of tests"; }
  std::string compile(std::string_view text) const override { return "OBJECT OF " + std::string(text); }
};

/// A text of no other test, and no other process.
std::string new_text() {
  static int last = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return "text " + std::to_string(++last) + " of process " + std::to_string(getpid()) + " at " + std::to_string(now) + "\nits second line";
}

std::string object_of(const std::string& text) {
  std::string object;
  load_object(Uppercase(), text, text, [&](std::string_view given) { object = given; });
  return object;
}

TEST(KernelObject, HasItsTextInTheLogWhereverItComesFrom) {
  if (store::default_store_folder().empty()) GTEST_SKIP() << "there is no store";
  const std::string text = new_text(), first_line = text.substr(0, text.find('\n'));
  tests::LogCapture logs("kernel_code");
  const std::string compiled = object_of(text);
  EXPECT_EQ(logs.count("compiled in "), 1U) << logs.text();
  EXPECT_EQ(logs.count(first_line), 1U);
  EXPECT_EQ(logs.count("its second line"), 1U);
  EXPECT_EQ(logs.count(", for "), 0U) << "nobody says for whom";
  logs.clear();
  EXPECT_EQ(object_of(text), compiled);
  EXPECT_EQ(logs.count("from the store on disk"), 1U) << logs.text();
  EXPECT_EQ(logs.count(first_line), 1U);
}

TEST(KernelObject, IsForWhomThisThreadAsks) {
  const tests::LogCapture logs("kernel_code");
  {
    const AskedBy group("graph 7");
    std::thread([] { object_of(new_text()); }).join();
    EXPECT_EQ(logs.count(", for "), 0U) << "another thread asks for itself";
    {
      const AskedBy within("graph 8");
      object_of(new_text());
    }
    object_of(new_text());
  }
  object_of(new_text());
  EXPECT_EQ(logs.count(" bytes, for graph 8"), 1U) << logs.text();
  EXPECT_EQ(logs.count(" bytes, for graph 7"), 1U) << logs.text();
  EXPECT_EQ(logs.count("compiled in "), 4U);
}

TEST(KernelObject, IsSilentWhereNobodyListens) {
  const tests::LogCapture logs("");
  object_of(new_text());
  EXPECT_EQ(logs.text(), "");
}

}  // namespace
}  // namespace hindcast::codegen
