#include "tests/support/same_grads.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

namespace hindcast::tests {
namespace {

Outcome run(const SeededProgram& program, uint64_t seed) {
  at::manual_seed(seed);  // dropout and its like must draw the same numbers on both engines
  try {
    return {program(seed), ""};
  } catch (const c10::Error& e) {
    return {{}, e.what_without_backtrace()};
  } catch (const std::exception& e) {
    return {{}, e.what()};
  }
}

std::string form_of(const at::Tensor& t) {
  if (!t.defined()) return "undefined";
  std::ostringstream text;
  text << t.dtype() << ' ' << t.layout() << ' ' << t.sizes();
  if (t.layout() == at::kStrided) text << " strides " << t.strides();
  if (t.is_conj()) text << " conj";
  if (t.is_neg()) text << " neg";
  if (t._is_zerotensor()) text << " without memory (all zero)";
  return text.str();
}

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.layout() != b.layout() || a.device() != b.device()) return false;
  if (a.sizes() != b.sizes() || a.is_conj() != b.is_conj() || a.is_neg() != b.is_neg()) return false;
  if (a._is_zerotensor() != b._is_zerotensor()) return false;
  return a.layout() != at::kStrided || a.strides() == b.strides();
}

/// Plain bytes in logical order, for comparing two tensors of the same form.
at::Tensor plain(const at::Tensor& t) {
  at::Tensor dense = t.detach();
  if (dense.layout() != at::kStrided) dense = dense.to_dense();
  if (dense._is_zerotensor()) dense = at::zeros(dense.sizes(), dense.options());
  dense = dense.resolve_conj().resolve_neg().cpu().contiguous();
  return dense.is_complex() ? at::view_as_real(dense) : dense;
}

at::Tensor bits(const at::Tensor& t) {
  switch (t.element_size()) {
    case 8:
      return t.view(at::kLong);
    case 4:
      return t.view(at::kInt);
    case 2:
      return t.view(at::kShort);
    default:
      return t.view(at::kByte);
  }
}

std::string first_element_difference(const at::Tensor& stock, const at::Tensor& hindcast) {
  const at::Tensor a = plain(stock);
  const at::Tensor b = plain(hindcast);
  if (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) return "";
  const at::Tensor same = bits(a).eq(bits(b)).logical_or(at::isnan(a).logical_and(at::isnan(b))).flatten();
  const int64_t differing = same.numel() - same.sum().item<int64_t>();
  if (differing == 0) return "";
  const int64_t at = same.logical_not().nonzero()[0].item<int64_t>();
  std::ostringstream text;
  text.precision(17);
  text << differing << " of " << same.numel() << " elements differ, first at " << at << ": stock " << a.flatten()[at].item<double>()
       << ", hindcast " << b.flatten()[at].item<double>() << ", largest difference "
       << (a.to(at::kDouble) - b.to(at::kDouble)).abs().nan_to_num().max().item<double>();
  return text.str();
}

}  // namespace

std::string first_difference(const at::Tensor& stock, const at::Tensor& hindcast) {
  if (!stock.defined() && !hindcast.defined()) return "";
  if (stock.defined() != hindcast.defined() || !same_form(stock, hindcast))
    return "stock has " + form_of(stock) + ", hindcast has " + form_of(hindcast);
  return first_element_difference(stock, hindcast);
}

bool bit_equal(const at::Tensor& a, const at::Tensor& b) { return first_difference(a, b).empty(); }

Outcome run_stock(const SeededProgram& program, uint64_t seed) { return run(program, seed); }

Outcome run_hindcast(const SeededProgram& program, uint64_t seed, const Options& options) {
  const Guard guard = enable(options);
  return run(program, seed);
}

bool expect_equal(const Outcome& stock, const Outcome& hindcast) {
  if (stock.error != hindcast.error) {
    ADD_FAILURE() << "stock raised '" << stock.error << "', hindcast raised '" << hindcast.error << "'";
    return false;
  }
  if (stock.tensors.size() != hindcast.tensors.size()) {
    ADD_FAILURE() << "stock left " << stock.tensors.size() << " tensors, hindcast " << hindcast.tensors.size();
    return false;
  }
  for (size_t i = 0; i < stock.tensors.size(); ++i) {
    const std::string difference = first_difference(stock.tensors[i], hindcast.tensors[i]);
    if (difference.empty()) continue;
    ADD_FAILURE() << "tensor " << i << " of " << stock.tensors.size() << ": " << difference;
    return false;
  }
  return true;
}

bool expect_same_grads(const SeededProgram& program, const std::vector<uint64_t>& seeds, const Options& options) {
  for (size_t i = 0; i < seeds.size(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i + 1) + " of " + std::to_string(seeds.size()) + ", seed " + std::to_string(seeds[i]));
    const Outcome stock = run_stock(program, seeds[i]);
    if (!expect_equal(stock, run_hindcast(program, seeds[i], options))) return false;
  }
  return true;
}

}  // namespace hindcast::tests
