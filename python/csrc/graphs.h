#pragma once
// Graphs that Python refers to by number.

#include "hindcast/graph.h"

#include <ATen/core/List.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace hindcast::python {

/// Kept until forget_graph(). 0 for null.
int64_t keep_graph(std::shared_ptr<const capture::Graph> graph);
void forget_graph(int64_t number);

std::string graph_text(int64_t number);
std::string graph_dot(int64_t number);
void write_svg(int64_t number, const std::string& path);

using Texts = std::vector<std::string>;
/// Per node: its op; its arguments; names, dtypes and shapes of its results. Inputs come first, with the op "placeholder"; the last node is
/// the "output". A name in a list of arguments begins with %.
using NodeColumns = std::tuple<Texts, std::vector<Texts>, std::vector<Texts>, std::vector<Texts>, std::vector<Texts>>;
NodeColumns graph_nodes(int64_t number);

using OptionalTensorList = c10::List<std::optional<at::Tensor>>;
/// Runs it through ATen, op by op, with the sizes at capture.
OptionalTensorList run_graph(int64_t number, const OptionalTensorList& inputs);

}  // namespace hindcast::python
