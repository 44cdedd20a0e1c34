#pragma once
// The stock engine's execution order, computed before anything runs.
//
// The engine pops ready nodes from a std::priority_queue over sequence numbers, pushing successors in edge order.
// AccumulateGrad nodes all have the largest number, so ties are common and come out in the heap's own order. We use the
// same container, comparison and push sequence, and therefore the same order.

#include "capture/backward/collected.h"

#include <queue>

namespace hindcast::capture {

/// Fills calls (node, needed, edges), roots and captures of `out`. Reused between calls to save its allocations.
class Walk {
 public:
  void run(const BackwardCall& call, Collected& out);

 private:
  struct Discovered {
    torch::autograd::Node* node;
    uint64_t sequence_nr;
    uint32_t dependencies;
    uint32_t first_edge, edge_count;
    uint32_t call;  // position in execution order
    bool needed;    // its apply is wanted
    bool captured;  // grad() wants one of its inputs
  };
  struct FoundEdge {
    uint32_t target;  // index into nodes_, or kNoCall
    uint32_t input_nr;
  };
  struct Entry {
    torch::autograd::Node* node;
    uint32_t index, epoch;
  };
  struct Ready {
    uint64_t sequence_nr;
    uint32_t index;
  };
  struct RunsLater {
    bool operator()(const Ready& a, const Ready& b) const { return a.sequence_nr < b.sequence_nr; }
  };

  uint32_t index_of(torch::autograd::Node* node);  // adds it when new
  uint32_t find(torch::autograd::Node* node) const;
  void grow_table();
  void discover(const BackwardCall& call);
  void mark_needed(const BackwardCall& call);
  void order(const BackwardCall& call, Collected& out);

  std::vector<Entry> table_;
  uint32_t epoch_ = 0;
  std::vector<Discovered> nodes_;
  std::vector<FoundEdge> edges_;
  std::vector<uint32_t> stack_, order_;
  std::vector<GradCapture> wanted_;  // call = index into nodes_
  std::vector<FoundEdge> roots_;
};

}  // namespace hindcast::capture
