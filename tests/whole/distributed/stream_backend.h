#pragma once
// A c10d back end on the fake device, for ranks that are threads: the host exchanges tensors through a store, on a separate stream, like
// NCCL. A collective runs once all ranks have reached it. Sums are taken in the order of ranks: every rank gets the same bits.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_device.h"

namespace hindcast::tests {

/// A collective that is done when its future is.
class StreamWork final : public c10d::Work {
 public:
  StreamWork(int rank, c10d::OpType type, at::Device device)
      : Work(rank, type),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector{device})) {}

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    future_->wait();
    return true;
  }

 private:
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class StreamBackend final : public c10d::Backend {
 public:
  /// `started` is called for every all-reduce, on the calling thread, before the exchange.
  using Started = std::function<void(const at::Tensor&)>;

  StreamBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Started started)
      : Backend(rank, size), store_(std::move(store)), started_(std::move(started)) {}

  const std::string getBackendName() const override { return "streams"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "StreamBackend can only sum");
    started_(tensors[0]);
    return exchange(c10d::OpType::ALLREDUCE, tensors, [](const std::vector<at::Tensor>& of_ranks) { return at::stack(of_ranks).sum(0); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return exchange(c10d::OpType::BROADCAST, tensors,
                    [root = static_cast<size_t>(options.rootRank)](const std::vector<at::Tensor>& of_ranks) { return of_ranks[root]; });
  }

 private:
  static constexpr int kStream = 9;
  using Combine = std::function<at::Tensor(const std::vector<at::Tensor>& of_ranks)>;

  c10::intrusive_ptr<c10d::Work> exchange(c10d::OpType type, std::vector<at::Tensor>& tensors, const Combine& combine) {
    const at::NoGradGuard no_grad;
    const at::Device device = tensors[0].device();
    const auto work = c10::make_intrusive<StreamWork>(rank_, type, device);
    const c10::impl::VirtualGuardImpl streams(device.type());
    const c10::Stream own = stream(kStream, device.index());
    order(streams.getStream(device), own);
    const c10::StreamGuard guard(own);
    for (const at::Tensor& tensor : tensors) streams.recordDataPtrOnStream(tensor.storage().data_ptr(), own);
    tensors[0].copy_(combine(all_of(tensors[0].to(at::kCPU).contiguous())));
    work->getFuture()->markCompleted(c10::IValue(tensors));
    return work;
  }

  /// The tensors of all ranks; `given` is this one's.
  std::vector<at::Tensor> all_of(const at::Tensor& given) {
    const std::string key = std::to_string(number_++) + "/";
    const auto* const bytes = static_cast<const uint8_t*>(given.const_data_ptr());
    store_->set(key + std::to_string(rank_), std::vector<uint8_t>(bytes, bytes + given.nbytes()));
    std::vector<at::Tensor> of_ranks;
    for (int rank = 0; rank < size_; ++rank) {
      const std::vector<uint8_t> received = store_->get(key + std::to_string(rank));
      TORCH_CHECK(received.size() == given.nbytes(), key, ": ", received.size(), " bytes, expected ", given.nbytes());
      of_ranks.push_back(at::empty_like(given));
      std::memcpy(of_ranks.back().mutable_data_ptr(), received.data(), received.size());
    }
    return of_ranks;
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const Started started_;
  int number_ = 0;
};

}  // namespace hindcast::tests
