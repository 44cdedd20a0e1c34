#include "tests/whole/streams/two_engines.h"

#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "hindcast/graph.h"
#include "tests/support/fake_device.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

constexpr int kRuns = 3;

struct Run {
  Seen seen;
  std::vector<std::string> unordered;
  EventCounts events;
};

Run run(const Program& program, int number) {
  install_fake_device();
  synchronize_fake_device();
  take_unordered();
  take_event_counts();
  const std::string before = current_streams();
  Run run{.seen = Seen(number)};
  program(run.seen);
  EXPECT_EQ(current_streams(), before);
  run.unordered = take_unordered();
  run.events = take_event_counts();
  return run;
}

std::vector<std::string> notes_of(const Run& run, const Expected& expected) {
  auto notes = run.seen.notes();
  if (expected.in_any_order) std::sort(notes.begin(), notes.end());
  return notes;
}

void compare(const Run& stock, const Run& ours, const Expected& expected) {
  EXPECT_EQ(notes_of(stock, expected), notes_of(ours, expected));
  ASSERT_EQ(stock.seen.tensors().size(), ours.seen.tensors().size());
  for (size_t i = 0; i < stock.seen.tensors().size(); ++i) {
    EXPECT_EQ(first_difference(stock.seen.tensors()[i], ours.seen.tensors()[i]), "") << "tensor " << i;
  }
  EXPECT_EQ(ours.unordered, std::vector<std::string>());
  if (!expected.stock_is_ordered) return;
  if (expected.in_any_order) return;  // which of two gradients comes first is random, and so is who waits
  EXPECT_LE(ours.events.recorded, stock.events.recorded);
  EXPECT_LE(ours.events.waited, stock.events.waited);
}

// A user's compiler: runs each segment by ATen, on the current stream.
std::vector<SegmentFunction> compile_segments(const std::shared_ptr<const Graph>& graph) {
  std::vector<SegmentFunction> functions;
  for (const Segment& segment : graph->segments()) {
    functions.push_back([graph, segment](std::vector<at::Tensor> inputs, const Bindings& bindings) {
      return graph->run(segment, std::move(inputs), bindings);
    });
  }
  return functions;
}

struct Setting {
  const char* name;
  Options options;
};
std::vector<Setting> settings() {
  return {
      {"eager", {.compiler = compilers::eager()}},
      {"fused", {.compiler = compilers::fused_through_aten(), .async = false}},
      {"compiled", {.compiler = Compiler(compile_segments, 1)}},
      {"verify", {.compiler = compilers::eager(), .verify = true}},
      {"nan_guard", {.compiler = compilers::eager(), .nan_guard = true}},
      {"visitor", {.compiler = compilers::eager(), .collector = Collector::Visitor}},
  };
}

}  // namespace

at::Tensor on_side(int side, const std::function<at::Tensor()>& make) {
  order(stream(0), stream(side));
  at::Tensor made;
  {
    const c10::StreamGuard guard(stream(side));
    made = make();
  }
  order(stream(side), stream(0));
  return made;
}

void Seen::show(const at::Tensor& tensor) { tensors_.push_back(to_cpu(tensor)); }

void Seen::hook(const at::Tensor& tensor, const std::string& name) {
  tensor.register_hook([this, name](const at::Tensor& gradient) {
    note(name + " at " + current_streams());
    return gradient * 2;
  });
}

void expect_same(const Program& program, const Expected& expected) {
  std::vector<Run> stock;
  for (int i = 0; i < kRuns; ++i) {
    stock.push_back(run(program, i));
    if (expected.stock_is_ordered) {
      EXPECT_EQ(stock.back().unordered, std::vector<std::string>()) << "the stock engine";
    }
  }
  for (const auto& [name, options] : settings()) {
    SCOPED_TRACE(name);
    reset();
    for (int i = 0; i < kRuns; ++i) {
      SCOPED_TRACE("run " + std::to_string(i));
      const auto guard = enable(options);
      compare(stock[static_cast<size_t>(i)], run(program, i), expected);
    }
    const Stats counts = stats();
    EXPECT_EQ(counts.backwards, static_cast<uint64_t>(kRuns * expected.backwards));
    EXPECT_EQ(counts.refused_graphs, 0U);
    EXPECT_EQ(counts.compiler_failures, 0U);
    if (!expected.always_captures) {
      EXPECT_GE(counts.hits, static_cast<uint64_t>((kRuns - 1) * expected.backwards));
    }
    for (const auto& [reason, count] : counts.fallbacks_by_reason) EXPECT_EQ(reason, expected.fallback) << count;
    EXPECT_EQ(counts.fallbacks_by_reason.empty(), expected.fallback.empty());
  }
}

}  // namespace hindcast::tests
