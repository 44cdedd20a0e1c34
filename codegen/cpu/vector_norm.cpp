#include "codegen/cpu/vector_norm.h"

#include "codegen/cpu/kernels.h"
#include "codegen/cpu/parallel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

// Elements that are summed up in the type of the arithmetic. Their sums are added up in float64.
constexpr int64_t kPiece = 1 << 14;
constexpr int64_t kPiecesOfThread = 4;

// A row's sum of squares.
Body sum_of_squares(at::ScalarType type) {
  const Operand element{Operand::Kind::Load, 0}, square{Operand::Kind::Result, 0}, sum{Operand::Kind::Result, 1};
  Body body;
  body.compute = type == at::kDouble ? at::kDouble : at::kFloat;
  body.by_rows = true;
  body.loads = {{type}};
  body.ops = {{"mul", {element, element}}, {"", {square}, BodyOp::Kind::Reduction, {Reduction::Kind::Sum, Reduction::Over::Row}}};
  body.stores = {{.value = sum, .type = body.compute, .extent = Extent::Row}};
  return body;
}

// The kernels that a process has used live on: a step asks for them each time.
std::shared_ptr<const CpuKernel> kernel_for(at::ScalarType type) {
  static auto* const kernels = new std::array<std::shared_ptr<const CpuKernel>, static_cast<size_t>(at::ScalarType::NumOptions)>;
  auto& kernel = (*kernels)[static_cast<size_t>(type)];
  if (auto known = std::atomic_load(&kernel)) return known;
  std::string why_not;
  auto made = kernel_of(sum_of_squares(type), why_not);
  if (made != nullptr) std::atomic_store(&kernel, made);
  return made;
}

struct Piece {
  const CpuKernel* kernel;
  const char* memory;
  int64_t numel;
  bool is_double;
};

double sum_of(const Piece& piece) {
  constexpr std::array<long, 2> kNoSteps = {0, 0};
  double wide = 0;
  float narrow = 0;
  char* const pointers[] = {const_cast<char*>(piece.memory),
                            piece.is_double ? reinterpret_cast<char*>(&wide) : reinterpret_cast<char*>(&narrow)};
  piece.kernel->rows(pointers, nullptr, 1, kNoSteps.data(), 1, kNoSteps.data(), piece.numel, nullptr);
  return piece.is_double ? wide : narrow;
}

}  // namespace

std::optional<double> euclidean_norm(at::TensorList tensors) {
  std::vector<Piece> pieces;
  std::vector<std::shared_ptr<const CpuKernel>> kernels;
  for (const at::Tensor& tensor : tensors) {
    const at::ScalarType type = tensor.scalar_type();
    const bool has_kernel = type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
    if (!has_kernel || !tensor.is_non_overlapping_and_dense()) return std::nullopt;
    const auto kernel = kernel_for(type);
    if (kernel == nullptr) return std::nullopt;
    if (kernels.empty() || kernels.back() != kernel) kernels.push_back(kernel);
    const auto* const memory = static_cast<const char*>(tensor.const_data_ptr());
    const auto width = static_cast<int64_t>(tensor.element_size());
    for (int64_t begin = 0; begin < tensor.numel(); begin += kPiece)
      pieces.push_back({kernel.get(), memory + begin * width, std::min(kPiece, tensor.numel() - begin), type == at::kDouble});
  }
  std::vector<double> sums(pieces.size());
  run_ranges(static_cast<int64_t>(pieces.size()), kPiecesOfThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(i)] = sum_of(pieces[static_cast<size_t>(i)]);
  });
  double sum = 0;
  for (const double of_piece : sums) sum += of_piece;
  return std::sqrt(sum);
}

}  // namespace hindcast::codegen::cpu
