#pragma once
// A small c10d backend: ranks exchange bytes through a c10d::Store. A helper thread runs the collectives, one after another, so that a call
// returns at once and the caller continues to compute, as with a real network. Sums are taken in the order of ranks: every rank gets the
// same bits.

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hindcast::tests {

class StoreWork : public c10d::Work {
 public:
  StoreWork(int rank, c10d::OpType type)
      : Work(rank, type), future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  void complete(const std::vector<at::Tensor>& tensors) {
    finish();
    future_->markCompleted(c10::IValue(tensors));
  }
  void fail(std::exception_ptr error) {
    finish(error);
    future_->setError(error);
  }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class StoreBackend : public c10d::Backend {
 public:
  /// `started` is called for every all-reduce on the calling thread, before it runs.
  using Started = std::function<void(const at::Tensor&)>;

  StoreBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Started started)
      : Backend(rank, size), store_(std::move(store)), started_(std::move(started)), helper_([this] { carry_out(); }) {}

  ~StoreBackend() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_one();
    helper_.join();
  }

  const std::string getBackendName() const override { return "store"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "StoreBackend can only sum");
    started_(tensors[0]);
    return enqueue(c10d::OpType::ALLREDUCE, tensors, [this](const std::string& key, const at::Tensor& tensor) {
      store_->set(key + std::to_string(rank_), bytes(tensor));
      auto sum = at::zeros_like(tensor);
      for (int rank = 0; rank < size_; ++rank) {
        sum.add_(received(key + std::to_string(rank), tensor));
      }
      tensor.copy_(sum);
    });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return enqueue(c10d::OpType::BROADCAST, tensors, [this, root = options.rootRank](const std::string& key, const at::Tensor& tensor) {
      if (rank_ == root) {
        store_->set(key, bytes(tensor));
      } else {
        tensor.copy_(received(key, tensor));
      }
    });
  }

 private:
  using Exchange = std::function<void(const std::string& key, const at::Tensor&)>;

  struct Job {
    c10::intrusive_ptr<StoreWork> work;
    std::vector<at::Tensor> tensors;
    Exchange exchange;
  };

  c10::intrusive_ptr<c10d::Work> enqueue(c10d::OpType type, const std::vector<at::Tensor>& tensors, Exchange exchange) {
    auto work = c10::make_intrusive<StoreWork>(rank_, type);
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({work, tensors, std::move(exchange)});
    }
    changed_.notify_one();
    return work;
  }

  void carry_out() {
    const at::NoGradGuard no_grad;
    for (int64_t number = 0;; ++number) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      try {
        for (size_t i = 0; i < job.tensors.size(); ++i) {
          job.exchange(std::to_string(number) + "/" + std::to_string(i) + "/", job.tensors[i]);
        }
        job.work->complete(job.tensors);
      } catch (...) {
        job.work->fail(std::current_exception());
      }
    }
  }

  static std::vector<uint8_t> bytes(const at::Tensor& tensor) {
    const auto flat = tensor.contiguous();
    const auto* data = static_cast<const uint8_t*>(flat.const_data_ptr());
    return {data, data + flat.nbytes()};
  }

  at::Tensor received(const std::string& key, const at::Tensor& like) {
    const auto data = store_->get(key);
    auto tensor = at::empty(like.sizes(), like.options());
    TORCH_CHECK(data.size() == tensor.nbytes(), key, ": ", data.size(), " bytes, expected ", tensor.nbytes());
    std::memcpy(tensor.mutable_data_ptr(), data.data(), data.size());
    return tensor;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  Started started_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool closed_ = false;
  std::thread helper_;  // last: starts when all else is there
};

}  // namespace hindcast::tests
