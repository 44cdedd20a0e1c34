#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace digits {

struct Options {
  std::string model = "all";
  std::optional<std::int64_t> epochs;  ///< otherwise each recipe's own
  std::int64_t batch_size = 64;
  std::string compiler = "fused";
  bool whole_step = false;  ///< instead of gradients: what each line of hindcast does for the whole training step
  std::uint64_t seed = 1;
  int threads = 1;  ///< models this small gain little from more, and timings get noisier
  std::optional<std::filesystem::path> json;
  std::optional<std::filesystem::path> data;
};

struct CommandLine {
  Options options;
  std::optional<int> exit_code;  ///< set if nothing is left to do: after --help, or a mistake
};

/// Reads the command line; prints the help text or what is wrong with an argument.
CommandLine parse(int argc, char** argv);

}  // namespace digits
