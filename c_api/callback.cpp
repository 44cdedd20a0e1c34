#include "c_api/callback.h"

#include "c_api/boundary.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace hindcast::c_api {
namespace {

std::string& callbacks_error() {
  static thread_local std::string text;
  return text;
}

// The tensors that a callback has returned, now owned by this object.
class Outputs {
 public:
  Outputs(uint64_t count, const std::vector<void*>& inputs) : inputs_(inputs), pointers_(count, nullptr) {}
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  ~Outputs() {
    std::sort(pointers_.begin(), pointers_.end());
    pointers_.erase(std::unique(pointers_.begin(), pointers_.end()), pointers_.end());
    for (void* const pointer : pointers_) {
      if (!is_input(pointer)) delete static_cast<at::Tensor*>(pointer);
    }
  }

  void** data() { return pointers_.data(); }
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> tensors;
    tensors.reserve(pointers_.size());
    for (auto pointer = pointers_.begin(); pointer != pointers_.end(); ++pointer) {
      const std::string which = "the callback's output " + std::to_string(pointer - pointers_.begin());
      if (*pointer == nullptr) throw std::runtime_error(which + " is NULL");
      if (is_input(*pointer)) throw std::runtime_error(which + " is an input's pointer; expected a new at::Tensor");
      if (std::find(pointers_.begin(), pointer, *pointer) != pointer) throw std::runtime_error(which + " is the pointer of an earlier one");
      tensors.push_back(*static_cast<const at::Tensor*>(*pointer));
    }
    return tensors;
  }

 private:
  bool is_input(void* pointer) const { return std::find(inputs_.begin(), inputs_.end(), pointer) != inputs_.end(); }

  const std::vector<void*>& inputs_;
  std::vector<void*> pointers_;
};

}  // namespace

std::vector<at::Tensor> Callback::operator()(const std::vector<at::Tensor>& inputs) const {
  std::vector<void*> pointers;
  pointers.reserve(inputs.size());
  for (const at::Tensor& input : inputs) pointers.push_back(const_cast<at::Tensor*>(&input));
  Outputs outputs(output_count_, pointers);
  // A callback may call another function after it has set its own error. If it has set none, it may pass on the other one's.
  std::string outer = std::exchange(callbacks_error(), {});
  const auto restore = c10::make_scope_exit([&] {
    if (!outer.empty()) callbacks_error() = std::move(outer);
  });
  const int32_t status = function_(user_data_, pointers.data(), pointers.size(), outputs.data(), output_count_);
  if (status != 0) {
    const std::string& text = callbacks_error();
    throw std::runtime_error(text.empty() ? "the callback returned " + std::to_string(status) + ", without hindcast_set_error()" : text);
  }
  return outputs.tensors();
}

}  // namespace hindcast::c_api

extern "C" void hindcast_set_error(const char* text) {
  using namespace hindcast::c_api;
  at_boundary("hindcast_set_error", [&] { callbacks_error() = text == nullptr ? "" : text; });
}
