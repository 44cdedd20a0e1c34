#include "capture/backward/traced.h"

#include "capture/recorder/recorder.h"

namespace hindcast::capture {

using torch::autograd::variable_list;

variable_list reals(const std::vector<Traced>& list) {
  variable_list result;
  for (const Traced& item : list) result.push_back(item.real);
  return result;
}

ValueIds values(const std::vector<Traced>& list) {
  ValueIds result;
  for (const Traced& item : list) result.push_back(item.value);
  return result;
}

variable_list stand_ins(Recorder& recorder, const std::vector<Traced>& list) {
  variable_list result;
  for (const Traced& item : list) result.push_back(item.real.defined() ? recorder.stand_in(item.real, item.value) : at::Tensor());
  return result;
}

std::vector<Traced> traced(Recorder& recorder, const variable_list& list) {
  std::vector<Traced> result;
  for (const at::Tensor& tensor : list) {
    if (!tensor.defined()) {
      result.push_back({});
      continue;
    }
    const ValueId id = recorder.value_of(tensor);
    const TracingTensor* stand_in = TracingTensor::get(tensor);
    result.push_back({stand_in ? stand_in->real : tensor, id});
  }
  return result;
}

}  // namespace hindcast::capture
