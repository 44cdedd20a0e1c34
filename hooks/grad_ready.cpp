#include "hindcast/grad_ready.h"

#include "base/fork.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace hindcast {
namespace hooks {
namespace {

// One mutex for all lists: held briefly, and a fork takes only this one.
base::ForkSafe<std::mutex>& lists_mutex() {
  static constinit base::MadeOnce<base::ForkSafe<std::mutex>> mutex;
  return mutex.get(base::ForkRank::Leaf);
}

}  // namespace

class GradReadyList {
 public:
  uint64_t add(std::function<void(const at::Tensor&)> fn) {
    const std::lock_guard lock(lists_mutex());
    callbacks_.push_back({++last_id_, std::make_shared<Callback>(std::move(fn))});
    return last_id_;
  }
  void remove(uint64_t id) {
    std::shared_ptr<Callback> removed;  // destroyed after the lock is released: its destructor is user code
    const std::lock_guard lock(lists_mutex());
    const auto found = std::find_if(callbacks_.begin(), callbacks_.end(), [id](const auto& entry) { return entry.first == id; });
    if (found == callbacks_.end()) return;
    removed = std::move(found->second);
    callbacks_.erase(found);
  }
  void call(const at::Tensor& param) {
    // One at a time, looked up again each time: a callback may remove others, or itself.
    for (uint64_t done = 0;;) {
      std::shared_ptr<Callback> next;
      {
        const std::lock_guard lock(lists_mutex());
        const auto found = std::find_if(callbacks_.begin(), callbacks_.end(), [done](const auto& entry) { return entry.first > done; });
        if (found == callbacks_.end()) return;
        done = found->first;
        next = found->second;
      }
      (*next)(param);
    }
  }

 private:
  using Callback = std::function<void(const at::Tensor&)>;
  std::vector<std::pair<uint64_t, std::shared_ptr<Callback>>> callbacks_;
  uint64_t last_id_ = 0;
};

namespace {

struct GradReadyHook final : torch::autograd::PostAccumulateGradHook {
  explicit GradReadyHook(std::unique_ptr<PostAccumulateGradHook> before)
      : former(std::move(before)), list(std::make_shared<GradReadyList>()) {}
  void operator()(const at::Tensor& param) override {
    const auto keep = list;  // the former hook or a callback may replace this hook
    if (former) (*former)(param);
    keep->call(param);
  }
  std::unique_ptr<PostAccumulateGradHook> former;
  std::shared_ptr<GradReadyList> list;
};

}  // namespace
}  // namespace hooks

void GradReadyHandle::remove() {
  if (const auto list = list_.lock()) list->remove(id_);
}

GradReadyHandle on_grad_ready(const at::Tensor& param, std::function<void(const at::Tensor&)> fn) {
  if (!param.defined() || !param.requires_grad() || !param.is_leaf()) {
    throw std::invalid_argument(std::string("hindcast::on_grad_ready: ") +
                                (!param.defined()         ? "the tensor is undefined"
                                 : !param.requires_grad() ? "the tensor does not require grad"
                                                          : "the tensor is not a leaf") +
                                ", expected a leaf that requires grad");
  }
  if (!fn) throw std::invalid_argument("hindcast::on_grad_ready: the callback is empty, expected a function");
  auto& slot = torch::autograd::impl::post_acc_grad_hooks(param);
  auto* hook = dynamic_cast<hooks::GradReadyHook*>(slot.get());
  if (!hook) {
    auto fresh = std::make_unique<hooks::GradReadyHook>(std::move(slot));
    hook = fresh.get();
    torch::autograd::impl::set_post_acc_grad_hooks(param, std::move(fresh));
  }
  GradReadyHandle handle;
  handle.list_ = hook->list;
  handle.id_ = hook->list->add(std::move(fn));
  return handle;
}

}  // namespace hindcast
