#pragma once
// The head of a kernel's text, and its entry points: one line each, which instantiates a skeleton (codegen/device/skeletons).

#include <c10/util/ArrayRef.h>

#include <string>
#include <string_view>

namespace hindcast::codegen::cuda {

/// `skeletons`: names of headers.
std::string head_of_text(c10::ArrayRef<std::string_view> skeletons);

/// `call`: calls a skeleton with `arguments`, of type `argument`. `bounds`: the launch bounds.
std::string entry_point(std::string_view name, std::string_view argument, std::string_view bounds, std::string_view call);

}  // namespace hindcast::codegen::cuda
