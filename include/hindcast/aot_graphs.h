#pragma once
/// Inspection of the programs of compiled functions and modules: <hindcast/aot.h>. Valid C++17.

#include <hindcast/detail/aot_core.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace hindcast {

using AotPrograms = detail::AotPrograms;

namespace detail {
HINDCAST_API void print_programs(const std::vector<AotPrograms>& programs, std::ostream& out);
HINDCAST_API void draw_programs(const std::vector<AotPrograms>& programs, const std::string& path);
}  // namespace detail

/// Runs a program op by op through ATen, in the program's order: the simplest function that a custom program compiler can return.
HINDCAST_API std::vector<at::Tensor> run_program(const Graph& program, const std::vector<at::Tensor>& inputs);

/// The programs of `compiled`, one AotPrograms per kind of call. Programs with a backward appear once a backward has run.
template <class Compiled>
std::vector<AotPrograms> get_graphs(const Compiled& compiled) {
  return compiled.core().programs();
}

/// Writes joint, forward and backward programs, and what is saved between them, to `out`.
template <class Compiled>
void print_graph(const Compiled& compiled, std::ostream& out) {
  detail::print_programs(get_graphs(compiled), out);
}

/// Draws the newest programs with Graphviz: "step.svg" gives step.joint.svg, step.forward.svg and step.backward.svg. Throws
/// std::runtime_error naming what is missing: a program, or Graphviz.
template <class Compiled>
void draw_graph(const Compiled& compiled, const std::string& path) {
  detail::draw_programs(get_graphs(compiled), path);
}

}  // namespace hindcast
