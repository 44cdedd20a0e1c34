#include "tests/support/programs.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <cxxabi.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace hindcast::tests {
namespace {

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

// FNV-1a: no strength is needed, only that any changed bit changes the text.
uint64_t hash_bytes(const void* data, size_t size) {
  uint64_t hash = 14695981039346656037ULL;
  for (auto p = static_cast<const unsigned char*>(data); size > 0; --size, ++p) {
    hash = (hash ^ *p) * 1099511628211ULL;
  }
  return hash;
}

std::string describe_dense(const at::Tensor& tensor) {
  std::ostringstream out;
  const auto values = tensor.resolve_conj().resolve_neg().contiguous();
  out << " #" << std::hex << hash_bytes(values.const_data_ptr(), values.nbytes()) << std::dec;
  auto numbers = values.is_complex() ? at::view_as_real(values) : values;
  numbers = numbers.reshape({-1}).to(at::kDouble);
  const auto shown = std::min<int64_t>(numbers.numel(), 8);
  for (int64_t i = 0; i < shown; ++i) {
    out << ' ' << numbers.const_data_ptr<double>()[i];
  }
  return out.str();
}

std::vector<std::string> run(const Program& program) {
  at::manual_seed(7);
  Log log;
  program(log);
  return log.events();
}

std::string joined(const std::vector<std::string>& lines, size_t from, size_t count) {
  std::string text;
  for (size_t i = from; i < std::min(lines.size(), from + count); ++i) {
    text += "    " + std::to_string(i) + "  " + lines[i] + "\n";
  }
  return text.empty() ? "    (the log ends here)\n" : text;
}

void expect_equal_events(const std::vector<std::string>& stock, const std::vector<std::string>& ours) {
  if (stock == ours) {
    return;
  }
  const auto first = std::mismatch(stock.begin(), stock.begin() + std::min(stock.size(), ours.size()), ours.begin());
  const size_t at = first.first - stock.begin();
  const size_t from = at < 3 ? 0 : at - 3;
  ADD_FAILURE() << "The logs differ from event " << at << " on.\n  stock:\n"
                << joined(stock, from, 8) << "  hindcast:\n"
                << joined(ours, from, 8);
}

}  // namespace

void Log::note(std::string event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

void Log::show(const std::string& name, const at::Tensor& tensor) { note(name + " = " + describe(tensor)); }

void Log::show(const std::string& name, const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    show(name + "[" + std::to_string(i) + "]", tensors[i]);
  }
}

std::vector<std::string> Log::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::string Log::describe_current_exception() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return "threw " + demangled(typeid(error).name()) + ": " + error.what_without_backtrace();
  } catch (const std::exception& error) {
    return "threw " + demangled(typeid(error).name()) + ": " + error.what();
  } catch (...) {
    return "threw something that is no std::exception";
  }
}

std::string describe(const at::Tensor& tensor) {
  // Inspecting a tensor must not record autograd nodes.
  const at::NoGradGuard no_grad;
  if (!tensor.defined()) {
    return "undefined";
  }
  std::ostringstream out;
  out << tensor.scalar_type() << ' ' << tensor.sizes();
  if (tensor.requires_grad()) {
    out << " requires_grad";
  }
  if (tensor.grad_fn()) {
    out << " with a history";  // with other nodes if a backward with create_graph ran a program
  }
  if (tensor.is_sparse()) {
    out << " sparse coalesced=" << tensor.is_coalesced() << " indices{" << describe(tensor._indices().detach()) << "} values{"
        << describe(tensor._values().detach()) << "}";
    return out.str();
  }
  if (tensor.layout() != at::kStrided) {
    out << ' ' << tensor.layout() << describe_dense(tensor.detach().to_dense());
    return out.str();
  }
  out << " strides " << tensor.strides() << (tensor.is_conj() ? " conj" : "") << (tensor.is_neg() ? " neg" : "")
      << describe_dense(tensor.detach());
  return out.str();
}

namespace {

// The ways in which hindcast runs a program; all must give the same bits.
std::vector<std::pair<const char*, Options>> ways() {
  Options visitor, fused;
  visitor.collector = Collector::Visitor;
  fused.compiler = compilers::fused_through_aten();
  fused.async = false;
  return {{"typed collectors", {}}, {"LibTorch's visitor", visitor}, {"fused plans", fused}};
}

}  // namespace

void expect_same(const Program& program, Takeover takeover) {
  const auto stock = run(program);
  for (const auto& [way, options] : ways()) {
    SCOPED_TRACE(way);
    hindcast::reset();
    std::vector<std::string> ours;
    {
      const auto guard = hindcast::enable(options);
      ours = run(program);
      EXPECT_TRUE(hindcast::active()) << "the program switched hindcast off";
    }
    EXPECT_FALSE(hindcast::active());
    expect_equal_events(stock, ours);
    if (takeover != Takeover::Any) {
      EXPECT_GT(hindcast::stats().backwards, 0U) << "every backward ran on the stock engine\n" << hindcast::report();
    }
    if (takeover == Takeover::Hits) {
      EXPECT_GT(hindcast::stats().hits, 0U) << "no backward was found in the cache\n" << hindcast::report();
    }
  }
}

void expect_same_steps(int steps, const std::function<void(Log&, int)>& step, Takeover takeover) {
  expect_same(
      [&](Log& log) {
        for (int i = 0; i < steps; ++i) {
          log.note("step " + std::to_string(i));
          step(log, i);
        }
      },
      takeover);
}

at::Tensor leaf(at::IntArrayRef sizes, at::TensorOptions options) { return at::randn(sizes, options).set_requires_grad(true); }

at::Tensor counting_leaf(at::IntArrayRef sizes, double start) {
  return (at::arange(c10::multiply_integers(sizes), at::kFloat).reshape(sizes) + start).set_requires_grad(true);
}

}  // namespace hindcast::tests
