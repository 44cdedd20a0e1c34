#include "capture/backward/facts.h"

#include "base/fork.h"
#include "base/format.h"

#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <array>

namespace hindcast::capture {
namespace {

// The meta word, low bits first: defined 1, rank 7, dtype 8, device type 8, device index 8, stride class 4, flags.
constexpr int kRankShift = 1, kDtypeShift = 8, kDeviceTypeShift = 16, kDeviceIndexShift = 24, kStrideShift = 32, kFlagShift = 36;
enum Flag : int64_t { kConj = 1, kNeg = 2, kRequiresGrad = 4, kWrappedNumber = 8, kInference = 16 };

// Dispatch keys that a plain strided tensor cannot have: all but its backend, autograd and a few other keys.
const c10::DispatchKeySet& odd_keys() {
  static constinit base::MadeOnce<const c10::DispatchKeySet> keys;
  return keys.by([] {
    const auto plain = c10::DispatchKeySet(c10::DispatchKeySet::FULL) & c10::autograd_dispatch_keyset;
    auto usual = plain | c10::DispatchKeySet({c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                              c10::DispatchKey::BackendSelect});
    usual = usual | c10::autocast_dispatch_keyset | c10::DispatchKeySet(c10::DispatchKey::Dense);
    auto odd = c10::DispatchKeySet(c10::DispatchKeySet::FULL) - usual;
    // Backend bits are shared by Dense, Sparse and Quantized: only the functionality bits identify a plain tensor.
    return c10::DispatchKeySet(c10::DispatchKeySet::RAW, odd.raw_repr() & ~c10::full_backend_mask);
  });
}

constexpr int kMaxPermutedRank = 14;
constexpr int64_t kNotPermuted = -1;

// Order of dense dimensions from outermost to innermost, one nibble each; stride-0 dimensions and sizes of 1 follow, marked. -1 if the
// tensor has other gaps or overlaps: then its strides are compared one by one.
int64_t permutation_code(at::IntArrayRef sizes, at::IntArrayRef strides) {
  const int rank = static_cast<int>(sizes.size());
  if (rank > kMaxPermutedRank) return kNotPermuted;
  std::array<int, kMaxPermutedRank> dims;
  int dense = 0;
  int64_t code = 1;
  for (int d = 0; d < rank; ++d) {
    if (sizes[d] != 1 && strides[d] != 0) dims[dense++] = d;
  }
  std::sort(dims.begin(), dims.begin() + dense,
            [&](int a, int b) { return strides[a] > strides[b] || (strides[a] == strides[b] && a < b); });
  int64_t expected = 1;
  for (int i = dense - 1; i >= 0; --i) {
    if (strides[dims[i]] != expected) return kNotPermuted;
    expected *= sizes[dims[i]];
  }
  for (int i = 0; i < dense; ++i) code = code << 4 | dims[i];
  int64_t expanded = 0;
  for (int d = 0; d < rank; ++d) {
    if (sizes[d] != 1 && strides[d] == 0) expanded |= int64_t{1} << d;
  }
  return dense <= 8 ? (code | expanded << 40) : kNotPermuted;
}

void note(std::vector<FactOrigin>* origins, FactOrigin origin, FactKind kind, uint32_t dim) {
  if (!origins) return;
  origin.kind = kind;
  origin.dim = dim;
  origins->push_back(origin);
}

}  // namespace

bool is_plain(const at::Tensor& tensor) { return !tensor.key_set().has_any(odd_keys()); }

void append_tensor_facts(const at::Tensor& tensor, Facts& facts, std::vector<FactOrigin>* origins, FactOrigin origin) {
  if (!tensor.defined()) {
    facts.push_back(0);
    note(origins, origin, FactKind::TensorMeta, 0);
    return;
  }
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto device = impl.device();
  const auto keys = impl.key_set();
  if (!is_plain(tensor)) {  // an opaque node will consume it: only its kind matters
    facts.push_back(1 | int64_t(impl.layout()) << kFlagShift | int64_t{1} << 62);
    note(origins, origin, FactKind::TensorMeta, 0);
    return;
  }
  int64_t flags = 0;
  if (keys.has(c10::DispatchKey::Conjugate)) flags |= kConj;
  if (keys.has(c10::DispatchKey::Negative)) flags |= kNeg;
  if (impl.requires_grad()) flags |= kRequiresGrad;
  if (impl.is_wrapped_number()) flags |= kWrappedNumber;
  if (impl.is_inference()) flags |= kInference;

  const auto sizes = impl.sizes();
  const auto strides = impl.strides();
  StrideClass stride_class = StrideClass::Contiguous;
  int64_t code = 0;
  if (!impl.is_contiguous()) {
    code = permutation_code(sizes, strides);
    stride_class = code == kNotPermuted ? StrideClass::Exact : StrideClass::Permuted;
  }
  facts.push_back(1 | int64_t(sizes.size()) << kRankShift | int64_t(tensor.scalar_type()) << kDtypeShift |
                  int64_t(device.type()) << kDeviceTypeShift | int64_t(uint8_t(device.index())) << kDeviceIndexShift |
                  int64_t(stride_class) << kStrideShift | flags << kFlagShift);
  note(origins, origin, FactKind::TensorMeta, 0);
  for (size_t d = 0; d < sizes.size(); ++d) {
    facts.push_back(sizes[d]);
    note(origins, origin, FactKind::TensorSize, static_cast<uint32_t>(d));
  }
  if (stride_class == StrideClass::Permuted) {
    facts.push_back(code);
    note(origins, origin, FactKind::TensorStride, 0);
  } else if (stride_class == StrideClass::Exact) {
    for (size_t d = 0; d < strides.size(); ++d) {
      facts.push_back(strides[d]);
      note(origins, origin, FactKind::TensorStride, static_cast<uint32_t>(d));
    }
  }
}

std::string describe_change(FactKind kind, int64_t before, int64_t after) {
  if (kind != FactKind::TensorMeta) return base::format("{} -> {}", before, after);
  if ((before & 1) != (after & 1)) return after & 1 ? "undefined -> defined" : "defined -> undefined";
  const auto field = [](int64_t word, int shift, int bits) { return word >> shift & ((int64_t{1} << bits) - 1); };
  std::string text;
  const auto add = [&](std::string_view name, auto&& print, int shift, int bits) {
    const auto b = field(before, shift, bits), a = field(after, shift, bits);
    if (b == a) return;
    if (!text.empty()) text += ", ";
    text += base::format("{} {} -> {}", name, print(b), print(a));
  };
  const auto number = [](int64_t v) { return std::to_string(v); };
  add("rank", number, kRankShift, 7);
  add(
      "dtype", [](int64_t v) { return std::string(c10::toString(static_cast<at::ScalarType>(v))); }, kDtypeShift, 8);
  add(
      "device type", [](int64_t v) { return c10::DeviceTypeName(static_cast<c10::DeviceType>(v), true); }, kDeviceTypeShift, 8);
  add("device index", number, kDeviceIndexShift, 8);
  add(
      "layout",
      [](int64_t v) {
        static constexpr const char* names[] = {"contiguous", "permuted", "strided"};
        return std::string(v < 3 ? names[v] : "other");
      },
      kStrideShift, 4);
  const auto flag = [&](std::string_view name, int64_t bit) {
    const bool b = before >> kFlagShift & bit, a = after >> kFlagShift & bit;
    if (b == a) return;
    if (!text.empty()) text += ", ";
    text += base::format("{} {} -> {}", name, b, a);
  };
  flag("conj", kConj);
  flag("neg", kNeg);
  flag("requires_grad", kRequiresGrad);
  flag("wrapped number", kWrappedNumber);
  flag("inference", kInference);
  return text.empty() ? "other tensor kind" : text;
}

}  // namespace hindcast::capture
