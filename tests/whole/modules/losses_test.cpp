// All losses of torch::nn, and models made of many modules: bit-equal gradients over four steps.

#include "tests/whole/modules/train_module.h"

namespace hindcast::tests::losses_test {
namespace {

namespace nn = torch::nn;

at::Tensor like(const at::Tensor& prediction) { return at::randn_like(prediction); }
at::Tensor probabilities(const at::Tensor& prediction) { return at::rand_like(prediction); }
at::Tensor signs(const at::Tensor& prediction) { return at::sign(at::randn_like(prediction)); }
at::Tensor classes(const at::Tensor& prediction) { return at::randint(prediction.size(1), {prediction.size(0)}, at::kLong); }
at::Tensor multi_classes(const at::Tensor& prediction) {
  auto target = at::full(prediction.sizes(), -1, at::kLong);
  target.select(1, 0).copy_(classes(prediction));
  return target;
}

std::vector<at::Tensor> three(int64_t batch) { return {real_input(batch, {5}), real_input(batch, {5}), real_input(batch, {5})}; }

std::vector<at::Tensor> two_and_signs(int64_t batch) {
  return {real_input(batch, {5}), real_input(batch, {5}), at::sign(at::randn({batch}))};
}

nn::Sequential convolutional() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(1)), nn::BatchNorm2d(6), nn::ReLU(),
                        nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({1, 1})), nn::Flatten(), nn::Linear(6, 3), nn::LogSoftmax(1));
}

nn::Sequential perceptron() {
  return nn::Sequential(nn::Linear(6, 8), nn::LayerNorm(nn::LayerNormOptions({8})), nn::GELU(), nn::Dropout(0.2), nn::Linear(8, 8),
                        nn::Tanh(), nn::Linear(8, 2));
}

// One row per line.
// clang-format off
const std::vector<ModuleRow>& rows() {
  static const std::vector<ModuleRow> table{
      loss<nn::L1Loss>("L1Loss", [] { return nn::L1Loss(); }, {5}, like),
      loss<nn::MSELoss>("MSELoss", [] { return nn::MSELoss(); }, {5}, like),
      loss<nn::SmoothL1Loss>("SmoothL1Loss", [] { return nn::SmoothL1Loss(); }, {5}, like),
      loss<nn::HuberLoss>("HuberLoss", [] { return nn::HuberLoss(); }, {5}, like),
      loss<nn::CrossEntropyLoss>("CrossEntropyLoss", [] { return nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.1)); }, {5}, classes),
      loss<nn::CrossEntropyLoss>("CrossEntropyLossWeighted", [] { return nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(at::arange(1, 6).to(at::kFloat))); }, {5}, classes),
      loss<nn::NLLLoss>("NLLLoss", [] { return nn::NLLLoss(); }, {5}, classes),
      loss<nn::KLDivLoss>("KLDivLoss", [] { return nn::KLDivLoss(nn::KLDivLossOptions().reduction(torch::kBatchMean)); }, {5}, probabilities),
      loss<nn::BCEWithLogitsLoss>("BCEWithLogitsLoss", [] { return nn::BCEWithLogitsLoss(); }, {5}, probabilities),
      loss<nn::PoissonNLLLoss>("PoissonNLLLoss", [] { return nn::PoissonNLLLoss(); }, {5}, probabilities),
      loss<nn::SoftMarginLoss>("SoftMarginLoss", [] { return nn::SoftMarginLoss(); }, {5}, signs),
      loss<nn::HingeEmbeddingLoss>("HingeEmbeddingLoss", [] { return nn::HingeEmbeddingLoss(); }, {5}, signs),
      loss<nn::MultiMarginLoss>("MultiMarginLoss", [] { return nn::MultiMarginLoss(); }, {5}, classes),
      loss<nn::MultiLabelMarginLoss>("MultiLabelMarginLoss", [] { return nn::MultiLabelMarginLoss(); }, {5}, multi_classes),
      loss<nn::MultiLabelSoftMarginLoss>("MultiLabelSoftMarginLoss", [] { return nn::MultiLabelSoftMarginLoss(); }, {5}, probabilities),
      custom<nn::BCELoss>("BCELoss", [] { return nn::BCELoss(); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {5}), at::rand({batch, 5})}; }, [](auto& m, auto& in) { return m(in[0].sigmoid(), in[1]); }),
      custom<nn::CosineEmbeddingLoss>("CosineEmbeddingLoss", [] { return nn::CosineEmbeddingLoss(); }, two_and_signs, [](auto& m, auto& in) { return m(in[0], in[1], in[2]); }),
      custom<nn::MarginRankingLoss>("MarginRankingLoss", [] { return nn::MarginRankingLoss(); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {}), real_input(batch, {}), at::sign(at::randn({batch}))}; }, [](auto& m, auto& in) { return m(in[0], in[1], in[2]); }),
      custom<nn::TripletMarginLoss>("TripletMarginLoss", [] { return nn::TripletMarginLoss(); }, three, [](auto& m, auto& in) { return m(in[0], in[1], in[2]); }),
      custom<nn::TripletMarginWithDistanceLoss>("TripletMarginWithDistanceLoss", [] { return nn::TripletMarginWithDistanceLoss(); }, three, [](auto& m, auto& in) { return m(in[0], in[1], in[2]); }),
      custom<nn::CTCLoss>("CTCLoss", [] { return nn::CTCLoss(); },
          [](int64_t batch) {
            return std::vector<at::Tensor>{at::randn({6, batch, 5}).set_requires_grad(true), at::randint(1, 5, {batch, 2}, at::kLong),
                                           at::full({batch}, 6, at::kLong), at::full({batch}, 2, at::kLong)};
          },
          [](auto& m, auto& in) { return m(in[0].log_softmax(2), in[1], in[2], in[3]); }),
      custom<nn::AdaptiveLogSoftmaxWithLoss>("AdaptiveLogSoftmaxWithLoss", [] { return nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(6, 9, {3, 6}).div_value(2)); },
          [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {6}), at::arange(batch) * 2}; },
          [](auto& m, auto& in) { return m(in[0], in[1]).output; }),
      custom<nn::Sequential>("ConvolutionalModel", convolutional, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {1, 8, 8})}; }, [](auto& m, auto& in) { return m->forward(in[0]); }),
      custom<nn::Sequential>("PerceptronModel", perceptron, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {6})}; }, [](auto& m, auto& in) { return m->forward(in[0]); }),
      custom<nn::TransformerEncoder>("TransformerEncoderModel", [] { return nn::TransformerEncoder(nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1), 2)); }, [](int64_t batch) { return std::vector<at::Tensor>{at::randn({5, batch, 8}).set_requires_grad(true)}; }, [](auto& m, auto& in) { return m(in[0]); }),
  };
  return table;
}
// clang-format on

class Losses : public testing::TestWithParam<ModuleRow> {};

TEST_P(Losses, TrainAlikeWithUndefinedGrads) { train_with_both_engines(GetParam(), /*set_to_none=*/true); }

TEST_P(Losses, TrainAlikeWithZeroedGrads) { train_with_both_engines(GetParam(), /*set_to_none=*/false); }

TEST_P(Losses, TrainAlikeCompiledAheadOfTime) {
  train_compiled(GetParam(), partition::standard);
  train_compiled(GetParam(), partition::min_cut);
}

TEST_P(Losses, PassVerification) { train_with_verified_graphs(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Modules, Losses, testing::ValuesIn(rows()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hindcast::tests::losses_test
