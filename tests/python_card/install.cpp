// Operators by which tests in Python install the emulated card, and take the errors found on it.

#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/engine/cuda_graphs/fake_card.h"
#include "tests/support/kept_texts.h"

namespace hindcast::tests {
// Only test programs keep the texts of kernels.
void keep_text(std::string_view) {}
}  // namespace hindcast::tests

TORCH_LIBRARY_FRAGMENT(hindcast, m) {
  m.def("install_fake_card() -> ()", &hindcast::tests::install_fake_card);
  m.def("fail_captured_launch_on_fake_card(int n) -> ()", &hindcast::tests::fail_captured_launch);
  m.def("take_errors_of_fake_card() -> str[]", [] {
    std::vector<std::string> errors = hindcast::tests::take_graph_errors();
    for (std::string& error : hindcast::tests::take_unordered()) errors.push_back(std::move(error));
    return errors;
  });
}
