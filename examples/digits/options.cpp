#include "examples/digits/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <vector>

#include "examples/digits/models.h"

namespace digits {
namespace {

constexpr int kUsageError = 2;
constexpr std::int64_t kLargest = 1'000'000'000;

CLI::Validator whole_number(std::int64_t least, std::int64_t most = kLargest) {
  const auto check = [least, most](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && next == end && value >= least && value <= most) return "";
    return fmt::format("\"{}\" is not a whole number from {} to {}", text, least, most);
  };
  return CLI::Validator(check, "N");
}

std::vector<std::string> model_names() {
  std::vector<std::string> names = {"all"};
  for (const Recipe& recipe : recipes()) names.push_back(recipe.name);
  return names;
}

CLI::Validator known_model() {
  const auto check = [](const std::string& text) -> std::string {
    const std::vector<std::string> names = model_names();
    for (const std::string& name : names) {
      if (name == text) return "";
    }
    return fmt::format("unknown model \"{}\"; the models are {}", text, fmt::join(names, ", "));
  };
  return CLI::Validator(check, fmt::format("{}", fmt::join(model_names(), ", ")));
}

CLI::Validator not_empty() {
  const auto check = [](const std::string& text) -> std::string { return text.empty() ? "the file name is empty" : ""; };
  return CLI::Validator(check, "FILE");
}

std::string default_epochs() {
  std::string text;
  for (const Recipe& recipe : recipes()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", recipe.name, recipe.epochs);
  }
  return text;
}

}  // namespace

CommandLine parse(int argc, char** argv) {
  CommandLine line;
  Options& options = line.options;

  CLI::App app(
      "Trains small models on handwritten digits with hindcast, lets the stock autograd engine compute the "
      "gradients\nof every step as well, and compares each gradient and the time of each backward.",
      "digits");
  app.add_option("--model", options.model, "which model to train")->check(known_model())->type_name("")->capture_default_str();
  app.add_option("--compiler", options.compiler, "hindcast's: kernels of its own, or ATen's to the stock engine's bits")
      ->check(CLI::IsMember({"fused", "eager"}))
      ->type_name("")
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "passes over the training images [" + default_epochs() + "]")
      ->check(whole_number(1))
      ->type_name("");
  app.add_option("--batch-size", options.batch_size, "images in a batch; an epoch's last one is smaller")
      ->check(whole_number(1))
      ->type_name("")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "decides weights, batches and dropout masks")
      ->check(whole_number(0))
      ->type_name("")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads that LibTorch may use")
      ->check(whole_number(1, 1024))
      ->type_name("")
      ->capture_default_str();
  app.add_flag("--whole-step", options.whole_step,
               "time whole training steps instead: as they are, then with enable(), aot_module() and compiled_step()");
  app.add_option("--json", options.json, "also write the results to this file")->check(not_empty())->type_name("");
  app.add_option("--data", options.data, "the digits [data/digits/digits.csv of the source tree]")->check(not_empty())->type_name("");
  app.footer(
      "The program fails if a gradient differs by more than rounding (eager: at all), or if a model trained\n"
      "for its default epochs or more gets 95% or less of the held-out digits right.");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& finished) {
    line.exit_code = app.exit(finished) == 0 ? 0 : kUsageError;
  }
  return line;
}

}  // namespace digits
