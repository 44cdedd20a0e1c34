#include "examples/digits/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace digits {
namespace {

namespace fs = std::filesystem;

constexpr int kPixels = 64;
constexpr int kMaxPixel = 16;
constexpr int kMaxDigit = 9;
constexpr std::size_t kFewestImages = 10;
constexpr std::uint64_t kSplitSeed = 1998;
constexpr const char* kPathInTree = "data/digits/digits.csv";

std::vector<fs::path> usual_places() {
  std::vector<fs::path> places;
#ifdef HINDCAST_SOURCE_DIR
  places.push_back(fs::path(HINDCAST_SOURCE_DIR) / kPathInTree);
#endif
  // A tree that was moved after the build still has its data above the program.
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  for (fs::path folder = program.parent_path(); !unknown && folder.has_relative_path(); folder = folder.parent_path()) {
    places.push_back(folder / kPathInTree);
  }
  places.push_back(kPathInTree);
  return places;
}

struct Row {
  float pixels[kPixels];
  std::int64_t digit;
};

/// Reads whole numbers separated by commas; `where` starts each message.
Row parse_row(std::string_view line, const std::string& where) {
  Row row{};
  int count = 0;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (at != end) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next != end && *next != ',')) {
      throw std::runtime_error(
          fmt::format("{}: number {} is not a whole number; expected 64 "
                      "pixels and the digit, separated by commas",
                      where, count + 1));
    }
    const int largest = count < kPixels ? kMaxPixel : kMaxDigit;
    if (value < 0 || value > largest) {
      throw std::runtime_error(fmt::format("{}: number {} is {}, expected 0 to {} ({})", where, count + 1, value, largest,
                                           count < kPixels ? "a pixel" : "the digit"));
    }
    if (count < kPixels) {
      row.pixels[count] = static_cast<float>(value) / (kMaxPixel / 2) - 1.0F;
    } else {
      row.digit = value;
    }
    if (++count > kPixels + 1) {
      throw std::runtime_error(fmt::format("{}: more than {} numbers; expected 64 pixels and the digit", where, kPixels + 1));
    }
    at = next == end ? end : next + 1;
  }
  if (count != kPixels + 1) {
    throw std::runtime_error(fmt::format("{}: {} numbers, expected {} (64 pixels and the digit)", where, count, kPixels + 1));
  }
  return row;
}

std::vector<Row> read_rows(const fs::path& path) {
  std::ifstream file(path);
  if (!file || fs::is_directory(path)) {
    throw std::runtime_error(
        fmt::format("cannot read the digits from {}: {}; the file ships with the source as {}, name it "
                    "with --data FILE",
                    path.string(), file ? "it is a folder" : std::strerror(errno), kPathInTree));
  }
  std::vector<Row> rows;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    rows.push_back(parse_row(line, fmt::format("{} line {}", path.string(), number)));
  }
  if (rows.size() < kFewestImages) {
    throw std::runtime_error(
        fmt::format("{}: {} images, expected at least {}; is it the whole file?", path.string(), rows.size(), kFewestImages));
  }
  return rows;
}

/// 0 .. n-1 in an order that depends only on the seed, not on LibTorch's generator.
torch::Tensor shuffled_indices(std::int64_t n, std::uint64_t seed) {
  torch::Tensor indices = torch::arange(n, torch::kInt64);
  std::int64_t* const first = indices.data_ptr<std::int64_t>();
  std::shuffle(first, first + n, std::mt19937_64(seed));
  return indices;
}

Batch pick(const Batch& all, const torch::Tensor& indices) {
  return {all.images.index_select(0, indices), all.labels.index_select(0, indices)};
}

}  // namespace

fs::path find_data(const std::optional<fs::path>& given) {
  if (given) return *given;
  std::string looked_at;
  for (const fs::path& place : usual_places()) {
    std::error_code unreadable;
    if (fs::exists(place, unreadable)) return place;
    looked_at += "\n  " + place.string();
  }
  throw std::runtime_error(
      fmt::format("the digits were not found; looked at{}\nrun from the root of the source tree, "
                  "or name the file with --data FILE",
                  looked_at));
}

Digits read_digits(const fs::path& path) {
  const std::vector<Row> rows = read_rows(path);
  const auto count = static_cast<std::int64_t>(rows.size());
  Batch all{torch::empty({count, 1, 8, 8}), torch::empty({count}, torch::kInt64)};
  float* pixels = all.images.data_ptr<float>();
  std::int64_t* labels = all.labels.data_ptr<std::int64_t>();
  for (const Row& row : rows) {
    pixels = std::copy(std::begin(row.pixels), std::end(row.pixels), pixels);
    *labels++ = row.digit;
  }
  const torch::Tensor order = shuffled_indices(count, kSplitSeed);
  const std::int64_t learn_from = count * 4 / 5;
  return {path, pick(all, order.slice(0, 0, learn_from)), pick(all, order.slice(0, learn_from))};
}

std::vector<Batch> shuffled_batches(const Batch& all, std::int64_t batch_size, std::uint64_t seed) {
  std::vector<Batch> batches;
  for (const torch::Tensor& indices : shuffled_indices(all.labels.size(0), seed).split(batch_size)) {
    batches.push_back(pick(all, indices));
  }
  return batches;
}

}  // namespace digits
