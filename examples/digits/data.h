#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace digits {

/// Images and their labels, side by side.
struct Batch {
  torch::Tensor images;  ///< float32 {n, 1, 8, 8}, from -1 (paper) to 1 (ink)
  torch::Tensor labels;  ///< int64 {n}, the digits 0 to 9
};

/// The handwritten digits, split into training and held-out images.
struct Digits {
  std::filesystem::path path;
  Batch train;
  Batch held_out;
};

/// The path of the data: `given` if the user named a file; otherwise data/digits/digits.csv of the source tree, of a folder above the
/// program, or of the working directory, whichever exists. Throws std::runtime_error that lists these places.
std::filesystem::path find_data(const std::optional<std::filesystem::path>& given);

/// Reads one image per line (64 pixels of 0 to 16, then the digit) and holds one image in five out. The split is the same on every run, so
/// that accuracies can be compared. Throws std::runtime_error that names the file and the line of the first mistake.
Digits read_digits(const std::filesystem::path& path);

/// One epoch: all of `all`, shuffled by `seed`. The last batch holds the rest.
std::vector<Batch> shuffled_batches(const Batch& all, std::int64_t batch_size, std::uint64_t seed);

}  // namespace digits
