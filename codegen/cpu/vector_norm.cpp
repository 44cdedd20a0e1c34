#include "codegen/cpu/vector_norm.h"

#include "codegen/cpu/kernels.h"
#include "codegen/cpu/parallel.h"
#include "base/fork.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

// Elements that are summed in the compute type. The sums of pieces are added in float64.
constexpr int64_t kPiece = 1 << 14;
constexpr int64_t kPiecesOfThread = 4;

// The body that computes a row's sum of squares.
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

// The kernels that the process has used, since each training step needs them.
struct Known {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};
  std::map<at::ScalarType, std::shared_ptr<const CpuKernel>> kernels;
};

std::shared_ptr<const CpuKernel> kernel_for(at::ScalarType type) {
  static constinit base::MadeOnce<Known> known_once;
  Known& known = known_once.get();
  {
    const std::lock_guard lock(known.mutex);
    if (const auto found = known.kernels.find(type); found != known.kernels.end()) return found->second;
  }
  std::string why_not;
  auto made = kernel_of(sum_of_squares(type), why_not);
  if (made == nullptr) return nullptr;
  const std::lock_guard lock(known.mutex);
  return known.kernels.emplace(type, std::move(made)).first->second;
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
  piece.kernel->rows({.pointers = pointers,
                      .scalars = nullptr,
                      .rows = 1,
                      .row_strides = kNoSteps.data(),
                      .segments = 1,
                      .segment_strides = kNoSteps.data(),
                      .columns = piece.numel,
                      .kept = nullptr});
  return piece.is_double ? wide : narrow;
}

}  // namespace

std::optional<double> euclidean_norm(at::TensorList tensors) {
  std::vector<Piece> pieces;
  std::shared_ptr<const CpuKernel> kernel;  // kept alive by kernel_for()
  std::optional<at::ScalarType> type;
  for (const at::Tensor& tensor : tensors) {
    if (!is_float(tensor.scalar_type()) || !tensor.is_non_overlapping_and_dense()) return std::nullopt;
    if (type != tensor.scalar_type()) kernel = kernel_for(*(type = tensor.scalar_type()));
    if (kernel == nullptr) return std::nullopt;
    const auto* const memory = static_cast<const char*>(tensor.const_data_ptr());
    const auto width = static_cast<int64_t>(tensor.element_size());
    for (int64_t begin = 0; begin < tensor.numel(); begin += kPiece)
      pieces.push_back({kernel.get(), memory + begin * width, std::min(kPiece, tensor.numel() - begin), *type == at::kDouble});
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
