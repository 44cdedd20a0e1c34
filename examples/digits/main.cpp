// The demo: small models learn handwritten digits, with the stock autograd engine and with hindcast.
// A program needs one line to use hindcast, `auto guard = hindcast::enable();`: see train.cpp.

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/digits/data.h"
#include "examples/digits/json_file.h"
#include "examples/digits/models.h"
#include "examples/digits/options.h"
#include "examples/digits/table.h"
#include "examples/digits/train.h"
#include "examples/digits/verdict.h"
#include "examples/digits/whole_step.h"

namespace {

using namespace digits;

/// Relative if the file is below the working directory, as after `make demo`.
std::string shown(const std::filesystem::path& path) {
  const std::filesystem::path relative = path.lexically_proximate(std::filesystem::current_path());
  return *relative.begin() == ".." ? path.string() : relative.string();
}

void describe(const Digits& digits, std::int64_t batch_size) {
  const std::int64_t train = digits.train.labels.size(0);
  const std::int64_t held_out = digits.held_out.labels.size(0);
  const std::int64_t last = train % batch_size == 0 ? batch_size : train % batch_size;
  fmt::print("{} images from {}: {} to learn from, {} held out\n", train + held_out, shown(digits.path), train, held_out);
  fmt::print("batches of {}, the last of an epoch of {}; {} thread{}; both engines compute the gradients of every step\n\n", batch_size,
             last, torch::get_num_threads(), torch::get_num_threads() == 1 ? "" : "s");
  std::fflush(stdout);
}

::hindcast::Compiler compiler_of(const Options& options) {
  return options.compiler == "eager" ? ::hindcast::compilers::eager() : ::hindcast::compilers::fused();
}

std::vector<Outcome> train_all(const Digits& digits, const Options& options) {
  const ::hindcast::Compiler compiler = compiler_of(options);
  std::vector<Outcome> outcomes;
  for (const Recipe& recipe : recipes()) {
    if (options.model != "all" && options.model != recipe.name) continue;
    const Schedule schedule{.epochs = options.epochs.value_or(recipe.epochs), .batch_size = options.batch_size, .seed = options.seed};
    outcomes.push_back(train(recipe, digits, schedule, compiler));
  }
  return outcomes;
}

int report(const std::vector<Outcome>& outcomes, double allowed_difference) {
  const Verdict verdict = judge(outcomes, allowed_difference);
  fmt::print("\n{}", table(outcomes, allowed_difference));
  for (const std::string& warning : verdict.warnings) fmt::print("! {}\n", warning);
  std::fflush(stdout);
  for (const std::string& failure : verdict.failures) fmt::print(stderr, "FAILED {}\n", failure);
  return verdict.failures.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

int run(const Options& options) {
  if (options.json) require_writable(*options.json);
  torch::set_num_threads(options.threads);
  const Digits digits = read_digits(find_data(options.data));
  const std::int64_t most = digits.train.labels.size(0);
  if (options.batch_size > most) {
    throw std::runtime_error(
        fmt::format("--batch-size {}: there are {} images to learn from; give 1 to {}", options.batch_size, most, most));
  }
  describe(digits, options.batch_size);
  if (options.whole_step) {
    fmt::print("\n{}", whole_steps(digits, options, compiler_of(options)));
    return EXIT_SUCCESS;
  }
  const std::vector<Outcome> outcomes = train_all(digits, options);
  const int status = report(outcomes, options.compiler == "eager" ? 0 : kLargestDifference);
  if (options.json) write_json(*options.json, options, outcomes);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine line = parse(argc, argv);
  if (line.exit_code) return *line.exit_code;
  try {
    return run(line.options);
  } catch (const c10::Error& error) {
    fmt::print(stderr, "digits: {}\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    fmt::print(stderr, "digits: {}\n", error.what());
  }
  return EXIT_FAILURE;
}
