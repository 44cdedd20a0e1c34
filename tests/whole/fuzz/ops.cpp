#include "tests/whole/fuzz/ops.h"

#include <stdexcept>
#include <string>
#include <tuple>

namespace hindcast::tests::fuzz {
namespace {

// The words are the names that the printer replaces by the program's.
#define HC_WORDS [[maybe_unused]] const auto& [a, b, c, i, j, k, s, n, sizes, log, name] = in
#define VALUE(rule, traits, weight, ...)                                                                               \
  {                                                                                                                    \
#__VA_ARGS__, Rule::rule, traits, weight, [](const Operands& in) -> Results { HC_WORDS; return {__VA_ARGS__}; }, false \
  }
#define VALUES(rule, traits, weight, ...)                                                                           \
  {                                                                                                                 \
#__VA_ARGS__, Rule::rule, traits, weight, [](const Operands& in) -> Results { HC_WORDS; return __VA_ARGS__; }, true \
  }
#define DO(rule, traits, weight, ...)                                                                                    \
  {                                                                                                                      \
#__VA_ARGS__, Rule::rule, traits, weight, [](const Operands& in) -> Results { HC_WORDS; __VA_ARGS__; return {}; }, false \
  }

// clang-format off
const std::vector<Op> kOps = {
    // One operand, its shape.
    VALUE(Same, kComplex | kKeepsLayout | kSavesNothing, 3, a.neg()),
    VALUE(Same, kComplex | kKeepsLayout | kSavesNothing, 6, a * s),
    VALUE(Same, kComplex | kKeepsLayout | kSavesNothing, 4, a + s),
    VALUE(Same, kComplex | kKeepsLayout, 4, a.sin()),
    VALUE(Same, kComplex | kKeepsLayout, 2, a.cos()),
    VALUE(Same, kComplex | kKeepsLayout | kSavesResult, 4, a.tanh()),
    VALUE(Same, kComplex | kKeepsLayout | kSavesResult, 3, (a * 0.25).exp()),
    VALUE(Same, kComplex | kKeepsLayout, 3, a * a),
    VALUE(Same, kComplex | kKeepsLayout | kSavesNothing, 3, a.clone()),
    VALUE(Same, kComplex | kSavesNothing | kKeepsLayout, 2, a.contiguous().clone()),
    VALUE(Same, kComplex | kView | kSavesNothing, 2, a.conj()),
    VALUE(Same, kReal | kKeepsLayout | kSavesResult, 4, a.relu()),
    VALUE(Same, kReal | kKeepsLayout | kSavesResult, 4, a.sigmoid()),
    VALUE(Same, kReal | kKeepsLayout, 3, at::gelu(a)),
    VALUE(Same, kReal | kKeepsLayout, 2, at::silu(a)),
    VALUE(Same, kReal | kKeepsLayout | kSavesResult, 1, at::softplus(a)),
    VALUE(Same, kReal | kKeepsLayout, 2, at::leaky_relu(a, 0.1)),
    VALUE(Same, kReal | kKeepsLayout | kSavesResult, 1, at::elu(a)),
    VALUE(Same, kReal | kKeepsLayout, 2, a.abs()),
    VALUE(Same, kReal | kKeepsLayout, 2, a.clamp(-0.5, 0.5)),
    VALUE(Same, kReal | kKeepsLayout, 3, a.pow(2)),
    VALUE(Same, kReal | kKeepsLayout, 2, (a.abs() + 0.5).pow(s)),
    VALUE(Same, kReal | kKeepsLayout, 2, (a.abs() + 1).log()),
    VALUE(Same, kReal | kKeepsLayout | kSavesResult, 2, (a.abs() + 1).sqrt()),
    VALUE(Same, kReal | kKeepsLayout | kSavesResult, 1, (a.abs() + 1).rsqrt()),
    VALUE(Same, kReal | kKeepsLayout | kSavesResult, 1, (a.abs() + 1).reciprocal()),
    VALUE(Same, kReal | kKeepsLayout, 1, a.erf()),
    VALUE(Same, kReal | kKeepsLayout, 1, a.atan()),
    VALUE(Same, kReal | kKeepsLayout, 1, a.sign()),
    VALUE(Same, kReal | kKeepsLayout, 1, at::log_sigmoid(a)),
    VALUE(Same, kReal | kKeepsLayout, 2, at::dropout(a, 0.5, true)),
    VALUE(Same, kReal | kKeepsLayout, 2, a.masked_fill(a > 0, s)),
    VALUE(Same, kReal | kKeepsLayout, 1, a.masked_fill(a > 0, a.sum())),
    VALUE(Same, kReal | kKeepsLayout, 2, at::where(a > 0, a, a * s)),
    VALUE(Same, kReal | kKeepsLayout, 2, Opaque::apply(a, s)),
    VALUE(Same, kReal | kKeepsLayout, 3, Traceable::apply(a, s)),
    VALUES(Pair, kReal | kKeepsLayout, 2, TwoOutputs::apply(a)),
    VALUE(Matrix, kReal | kKeepsLayout | kSavesNothing, 1, a.tril()),
    VALUE(AlongDim, kReal | kKeepsLayout | kSavesResult, 4, a.softmax(i)),
    VALUE(AlongDim, kReal | kKeepsLayout | kSavesResult, 3, a.log_softmax(i)),
    VALUE(AlongDim, kComplex | kKeepsLayout | kSavesNothing, 2, a.cumsum(i)),
    VALUE(AlongDim, kReal | kNoHalf, 1, a.logcumsumexp(i)),
    VALUE(AlongDim, kReal | kNoHalf, 1, a.cumprod(i)),
    VALUE(AlongDim, kComplex | kKeepsLayout | kSavesNothing, 1, a.flip(i)),
    VALUE(AlongDim, kComplex | kKeepsLayout | kSavesNothing, 1, a.roll(1, i)),
    VALUE(AlongDim, kReal, 1, std::get<0>(a.sort(i))),
    VALUE(AlongDim, kComplex, 2, a.index_select(i, at::arange(a.size(i)).to(a.device()).flip(0))),
    VALUE(AlongDim, kReal, 2, a.gather(i, at::zeros_like(a, at::kLong))),
    VALUE(LastDims, kReal | kNoHalf, 3, at::layer_norm(a, sizes)),
    VALUE(ToReal, kComplex | kView | kSavesNothing, 8, at::real(a)),
    VALUE(ToReal, kComplex, 12, a.abs().add(0)),
    VALUE(Cast, kReal | kView | kSavesNothing, 3, a.to(at::ScalarType(k))),
    VALUE(Detach, kComplex | kView | kSavesNothing, 1, a.detach()),

    // Two operands.
    VALUE(Broadcast, kComplex | kKeepsLayout | kSavesNothing, 10, a + b),
    VALUE(Broadcast, kComplex | kKeepsLayout | kSavesNothing, 4, a - b),
    VALUE(Broadcast, kComplex | kKeepsLayout, 12, a * b),
    VALUE(Broadcast, kReal | kKeepsLayout, 3, a / (b.abs() + 1)),
    VALUE(Broadcast, kReal | kKeepsLayout | kSavesNothing, 3, a.add(b, s)),
    VALUE(Broadcast, kReal | kKeepsLayout | kSavesNothing, 2, a.sub(b, s)),
    VALUE(Broadcast, kReal | kKeepsLayout, 2, at::maximum(a, b)),
    VALUE(Broadcast, kReal | kKeepsLayout, 2, at::where(a > b, a, b)),
    VALUE(Broadcast, kReal | kKeepsLayout, 1, at::addcmul(a, a, b, s)),
    VALUE(Broadcast, kReal | kKeepsLayout, 1, a.atan2(b.abs() + 1)),
    VALUE(Broadcast, kReal | kKeepsLayout, 1, (a.abs() + 0.5).pow(b)),
    VALUE(LikeBoth, kReal | kKeepsLayout, 2, a.lerp(b, s)),
    VALUE(LikeBoth, kReal, 1, a.index_add(0, at::arange(a.size(0)).to(a.device()).flip(0), b)),
    VALUE(TotalOfBoth, kReal, 2, at::mse_loss(a, b)),
    VALUE(TotalOfBoth, kReal, 1, at::smooth_l1_loss(a, b)),
    VALUE(TotalOfBoth, kReal, 1, at::binary_cross_entropy_with_logits(a, b.sigmoid())),
    VALUE(Cat, kComplex | kSavesNothing, 4, at::cat({a, b}, i)),
    VALUE(Stack, kComplex | kSavesNothing, 2, at::stack({a, b}, i)),

    // Reductions.
    VALUE(Total, kComplex | kSavesNothing, 2, a.sum()),
    VALUE(Total, kComplex | kSavesNothing, 2, a.mean()),
    VALUE(Total, kReal | kSavesResult, 1, a.norm()),
    VALUE(Total, kReal | kSavesResult, 1, a.max()),
    VALUE(Total, kReal | kSavesResult, 1, a.prod()),
    VALUE(Total, kReal, 1, a.index({a.detach() > 0}).sum()),
    VALUE(Classes, kReal | kNoHalf, 3, at::cross_entropy_loss(a, at::arange(a.size(0)).to(a.device()).remainder(a.size(1)))),
    VALUE(DropDim, kComplex | kSavesNothing, 5, a.sum(i)),
    VALUE(DropDim, kComplex | kSavesNothing, 3, a.mean(i)),
    VALUE(DropDim, kReal | kSavesResult, 2, a.amax(i)),
    VALUE(DropDim, kReal, 2, std::get<0>(a.max(i))),
    VALUE(DropDim, kReal | kSavesResult, 2, a.logsumexp(i)),
    VALUE(DropDim, kReal | kSavesResult | kNoHalf, 1, a.prod(i)),
    VALUE(DropDim, kReal | kSavesResult, 2, at::linalg_vector_norm(a, 2, i)),
    VALUE(KeepDim, kComplex | kSavesNothing, 3, a.sum(i, true)),
    VALUE(KeepDim, kReal | kSavesNothing, 2, a.mean(i, true)),
    VALUE(KeepDim, kReal | kSavesResult, 1, a.amax(i, true)),
    VALUE(KeepDim, kReal, 2, a.var(i, false, true)),

    // Views.
    VALUE(Transpose, kComplex | kView | kSavesNothing, 5, a.transpose(i, j)),
    VALUE(MoveDim, kComplex | kView | kSavesNothing, 2, a.movedim(i, j)),
    VALUE(Unsqueeze, kComplex | kView | kSavesNothing | kKeepsLayout, 3, a.unsqueeze(i)),
    VALUE(Squeeze, kComplex | kView | kSavesNothing | kKeepsLayout, 3, a.squeeze(i)),
    VALUE(Select, kComplex | kView | kSavesNothing, 5, a.select(i, j)),
    VALUE(Slice, kComplex | kView | kSavesNothing, 6, a.slice(i, j, k)),
    VALUE(EverySecond, kComplex | kView | kSavesNothing, 2, a.slice(i, 0, k, 2)),
    VALUE(Expand, kComplex | kView | kSavesNothing, 4, a.expand(sizes)),
    VALUE(View, kComplex | kView | kSavesNothing | kKeepsLayout, 4, a.view(sizes)),
    VALUE(Reshape, kComplex | kView | kSavesNothing | kKeepsLayout, 4, a.reshape(sizes)),
    VALUES(Unbind, kComplex | kManyViews | kView | kSavesNothing, 2, a.unbind(i)),
    VALUES(Split, kComplex | kManyViews | kView | kSavesNothing, 3, a.split(j, i)),
    VALUE(Pick, kReal, 2, a.index_select(i, at::arange(j).to(a.device()).remainder(a.size(i)))),
    VALUE(PickFirst, kReal, 2, a.index({at::arange(j).to(a.device()).remainder(a.size(0))})),

    // Products.
    VALUE(Mm, kComplex, 5, a.mm(b)),
    VALUE(Gram, kReal, 3, a.bmm(a.transpose(1, 2))),
    VALUE(Linear, kReal, 4, at::linear(a, b)),
    VALUE(LinearBias, kReal, 4, at::linear(a, b, c)),
    VALUE(MatMul, kReal, 3, a.matmul(b)),
    VALUE(Conv, kReal | kNoHalf, 3, at::conv1d(a, b)),

    // In place.
    DO(WriteSelf, kComplex | kSavesNothing, 4, a.mul_(s)),
    DO(WriteSelf, kComplex | kSavesNothing, 2, a.add_(s)),
    DO(WriteSelf, kReal | kSavesResult, 2, a.tanh_()),
    DO(WriteSelf, kReal | kSavesResult, 2, a.relu_()),
    DO(WriteSelf, kReal, 1, a.clamp_(-0.5, 0.5)),
    DO(WriteSelf, kComplex | kSavesNothing, 1, a.zero_()),
    DO(WriteSelf, kReal | kSavesNothing, 1, a.fill_(s)),
    DO(WriteSelf, kReal | kSavesNothing, 1, a.masked_fill_(a.detach() > 0, s)),
    DO(WriteFrom, kComplex, 6, a.mul_(b)),
    DO(WriteFrom, kComplex | kSavesNothing, 4, a.add_(b)),
    DO(WriteFrom, kReal | kSavesNothing, 3, a.copy_(b)),
    DO(WriteRows, kReal, 2, a.index_add_(0, at::arange(a.size(0)).to(a.device()), b)),

    // Hooks.
    DO(Hook, kComplex, 4, watch(log, name, a)),
    DO(Hook, kComplex, 4, replace(log, name, a, Layout(k))),
    DO(Hook, kComplex, 2, replace(log, name, a, Layout(n % 2 * k))),
    DO(Hook, kComplex, 3, clamp_traceably(a)),
    DO(Hook, kComplex | kRetains, 4, retain(a)),
    DO(Hook, kComplex, 2, watch_before_node(log, name, a, k % 2 == 1)),
    DO(Hook, kComplex, 2, watch_after_node(log, name, a, k % 2 == 1)),
    DO(LeafHook, kComplex, 2, watch_accumulation(log, name, a)),

    // In programs with functions only.
    VALUE(Same, kReal, 0, a * at::rand_like(a)),
    VALUE(Same, kReal, 0, a * at::empty_like(a).bernoulli_(0.5)),
    DO(WriteSelf, kReal, 0, a.mul_(at::rand_like(a))),
};
// clang-format on

}  // namespace

const std::vector<Op>& ops() { return kOps; }

int find_op(std::string_view text) {
  for (size_t index = 0; index < kOps.size(); ++index) {
    if (kOps[index].text == text) return static_cast<int>(index);
  }
  throw std::invalid_argument("tests/whole/fuzz/ops.cpp has no row '" + std::string(text) + "'");
}

bool is_statement(Rule rule) {
  switch (rule) {
    case Rule::WriteSelf:
    case Rule::WriteFrom:
    case Rule::WriteRows:
    case Rule::Hook:
    case Rule::LeafHook:
      return true;
    default:
      return false;
  }
}

}  // namespace hindcast::tests::fuzz
