#pragma once
// A CUDA graph of a card: captured through LibTorch (codegen/cuda/graphs), its nodes updated through the driver.

#include "codegen/cuda/graphs/plugin.h"
#include "codegen/cuda/logged_launches.h"
#include "codegen/kernel/recording.h"

#include <memory>

namespace hindcast::codegen::cuda {

class Card;

class CardRecording final : public Recording {
 public:
  /// As Backend::record(). `card` must outlive it.
  CardRecording(const Card& card, const CudaGraphsTable& graphs, c10::DeviceIndex device, c10::function_ref<void()> give);

  void launch() override { graph_->launch(); }
  bool move(c10::ArrayRef<MovedMemory> moved) override;
  bool replace_sets(c10::function_ref<void()> give) override;
  size_t bytes() const override { return graph_->bytes(); }

  /// The recording that this thread is capturing; nullptr if none.
  static CardRecording* current();
  /// Logs a launch that was just enqueued on `stream`.
  void log(const Launch& launch, void* stream);

 private:
  void update(const LoggedLaunches::One& launch);

  const Card& card_;
  const c10::DeviceIndex device_;
  LoggedLaunches launches_;
  std::unique_ptr<CapturedGraph> graph_;
};

}  // namespace hindcast::codegen::cuda
