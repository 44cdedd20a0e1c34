#pragma once

#include <string>
#include <vector>

namespace hindcast::bench {

/// What the command line chose; handed to every suite as a value.
struct Settings {
  std::vector<int> threads = {1};  // intra-op threads; every row is measured once for each
  bool quick = false;              // a smoke run: few samples, so the numbers mean little
  bool fused = true;               // hindcast's side runs under compilers::fused()
  bool report = false;             // prints hindcast::report() after each such row
  std::string soak = {};           // not empty: this process is one engine's half of a soak row
  double block_us = 1500;          // how long one side runs before the other takes its turn

  /// Number of (stock block, hindcast block) pairs behind a row that wants `full` of them.
  int pairs(int full) const { return quick ? 3 : full; }
};

/// The pairs of an ordinary row, and of one whose backward takes tens of milliseconds.
inline constexpr int kPairs = 101;
inline constexpr int kSlowPairs = 21;

}  // namespace hindcast::bench
