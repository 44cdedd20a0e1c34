// torch::nn modules with parameters, and those that only move or squash values: bit-equal gradients over four steps.

#include "tests/whole/modules/train_module.h"

namespace hindcast::tests {
namespace {

namespace nn = torch::nn;

std::vector<at::Tensor> indices(int64_t batch) { return {at::randint(10, {batch, 3}, at::kLong)}; }

// One row per line.
// clang-format off
const std::vector<ModuleRow>& rows() {
  static const std::vector<ModuleRow> table{
      // Linear and convolutions
      unary<nn::Linear>("Linear", [] { return nn::Linear(5, 4); }, {5}),
      unary<nn::Linear>("LinearWithoutBias", [] { return nn::Linear(nn::LinearOptions(5, 4).bias(false)); }, {2, 5}),
      unary<nn::Conv1d>("Conv1d", [] { return nn::Conv1d(nn::Conv1dOptions(3, 4, 3).padding(1)); }, {3, 7}),
      unary<nn::Conv2d>("Conv2d", [] { return nn::Conv2d(nn::Conv2dOptions(3, 4, 3).stride(2).padding(1)); }, {3, 8, 8}),
      unary<nn::Conv2d>("Conv2dGroups", [] { return nn::Conv2d(nn::Conv2dOptions(4, 4, 3).groups(2).dilation(2)); }, {4, 8, 8}),
      unary<nn::Conv3d>("Conv3d", [] { return nn::Conv3d(nn::Conv3dOptions(2, 3, 2)); }, {2, 4, 4, 4}),
      unary<nn::ConvTranspose1d>("ConvTranspose1d", [] { return nn::ConvTranspose1d(nn::ConvTranspose1dOptions(3, 2, 3)); }, {3, 5}),
      unary<nn::ConvTranspose2d>("ConvTranspose2d", [] { return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 2, 3).stride(2)); }, {3, 4, 4}),
      unary<nn::Unfold>("Unfold", [] { return nn::Unfold(nn::UnfoldOptions({2, 2})); }, {3, 5, 5}),
      unary<nn::Fold>("Fold", [] { return nn::Fold(nn::FoldOptions({4, 4}, {2, 2}).stride(2)); }, {12, 4}),

      // Normalisation
      unary<nn::BatchNorm1d>("BatchNorm1d", [] { return nn::BatchNorm1d(5); }, {5}),
      unary<nn::BatchNorm2d>("BatchNorm2d", [] { return nn::BatchNorm2d(3); }, {3, 4, 4}),
      unary<nn::BatchNorm3d>("BatchNorm3d", [] { return nn::BatchNorm3d(2); }, {2, 3, 3, 3}),
      unary<nn::LayerNorm>("LayerNorm", [] { return nn::LayerNorm(nn::LayerNormOptions({6})); }, {3, 6}),
      unary<nn::GroupNorm>("GroupNorm", [] { return nn::GroupNorm(nn::GroupNormOptions(2, 6)); }, {6, 4, 4}),
      unary<nn::InstanceNorm2d>("InstanceNorm2d", [] { return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true)); }, {3, 4, 4}),
      unary<nn::LocalResponseNorm>("LocalResponseNorm", [] { return nn::LocalResponseNorm(2); }, {4, 3, 3}),

      // Embeddings
      custom<nn::Embedding>("Embedding", [] { return nn::Embedding(10, 4); }, indices, [](auto& m, auto& in) { return m(in[0]); }),
      custom<nn::Embedding>("EmbeddingSparse", [] { return nn::Embedding(nn::EmbeddingOptions(10, 4).sparse(true)); }, indices, [](auto& m, auto& in) { return m(in[0]); }),
      custom<nn::Embedding>("EmbeddingPadding", [] { return nn::Embedding(nn::EmbeddingOptions(10, 4).padding_idx(1)); }, indices, [](auto& m, auto& in) { return m(in[0]); }),
      custom<nn::EmbeddingBag>("EmbeddingBagSum", [] { return nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 4).mode(torch::kSum)); }, indices, [](auto& m, auto& in) { return m(in[0]); }),
      custom<nn::EmbeddingBag>("EmbeddingBagMean", [] { return nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 4).mode(torch::kMean)); }, indices, [](auto& m, auto& in) { return m(in[0]); }),
      custom<nn::EmbeddingBag>("EmbeddingBagMax", [] { return nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 4).mode(torch::kMax)); }, indices, [](auto& m, auto& in) { return m(in[0]); }),

      // Recurrent and attention
      custom<nn::RNN>("RNN", [] { return nn::RNN(nn::RNNOptions(5, 4).batch_first(true)); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {3, 5})}; }, [](auto& m, auto& in) { return std::get<0>(m(in[0])); }),
      custom<nn::LSTM>("LSTM", [] { return nn::LSTM(nn::LSTMOptions(5, 4).num_layers(2).batch_first(true)); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {3, 5})}; }, [](auto& m, auto& in) { return std::get<0>(m(in[0])); }),
      custom<nn::GRU>("GRUBidirectional", [] { return nn::GRU(nn::GRUOptions(5, 4).bidirectional(true).batch_first(true)); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {3, 5})}; }, [](auto& m, auto& in) { return std::get<0>(m(in[0])); }),
      custom<nn::LSTMCell>("LSTMCell", [] { return nn::LSTMCell(5, 4); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {5})}; }, [](auto& m, auto& in) { return std::get<0>(m(in[0])); }),
      custom<nn::GRUCell>("GRUCell", [] { return nn::GRUCell(5, 4); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {5})}; }, [](auto& m, auto& in) { return m(in[0]); }),
      custom<nn::MultiheadAttention>("MultiheadAttention", [] { return nn::MultiheadAttention(8, 2); }, [](int64_t batch) { return std::vector<at::Tensor>{at::randn({5, batch, 8}).set_requires_grad(true)}; }, [](auto& m, auto& in) { return std::get<0>(m(in[0], in[0], in[0])); }),
      custom<nn::TransformerEncoderLayer>("TransformerEncoderLayer", [] { return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1)); }, [](int64_t batch) { return std::vector<at::Tensor>{at::randn({5, batch, 8}).set_requires_grad(true)}; }, [](auto& m, auto& in) { return m(in[0]); }),
      custom<nn::TransformerDecoderLayer>("TransformerDecoderLayer", [] { return nn::TransformerDecoderLayer(nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0)); }, [](int64_t batch) { return std::vector<at::Tensor>{at::randn({5, batch, 8}).set_requires_grad(true), at::randn({6, batch, 8}).set_requires_grad(true)}; }, [](auto& m, auto& in) { return m(in[0], in[1]); }),

      // Two inputs
      custom<nn::Bilinear>("Bilinear", [] { return nn::Bilinear(3, 4, 2); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {3}), real_input(batch, {4})}; }, [](auto& m, auto& in) { return m(in[0], in[1]); }),
      custom<nn::CosineSimilarity>("CosineSimilarity", [] { return nn::CosineSimilarity(); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {5}), real_input(batch, {5})}; }, [](auto& m, auto& in) { return m(in[0], in[1]); }),
      custom<nn::PairwiseDistance>("PairwiseDistance", [] { return nn::PairwiseDistance(); }, [](int64_t batch) { return std::vector<at::Tensor>{real_input(batch, {5}), real_input(batch, {5})}; }, [](auto& m, auto& in) { return m(in[0], in[1]); }),

      // Pools
      unary<nn::MaxPool1d>("MaxPool1d", [] { return nn::MaxPool1d(2); }, {3, 6}),
      unary<nn::MaxPool2d>("MaxPool2d", [] { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)); }, {3, 6, 6}),
      unary<nn::MaxPool3d>("MaxPool3d", [] { return nn::MaxPool3d(2); }, {2, 4, 4, 4}),
      unary<nn::AvgPool2d>("AvgPool2d", [] { return nn::AvgPool2d(2); }, {3, 6, 6}),
      unary<nn::AdaptiveAvgPool2d>("AdaptiveAvgPool2d", [] { return nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({2, 3})); }, {3, 5, 6}),
      unary<nn::AdaptiveMaxPool2d>("AdaptiveMaxPool2d", [] { return nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({2, 3})); }, {3, 5, 6}),
      unary<nn::LPPool2d>("LPPool2d", [] { return nn::LPPool2d(nn::LPPool2dOptions(2.0, 2)); }, {3, 4, 4}),
      unary<nn::FractionalMaxPool2d>("FractionalMaxPool2d", [] { return nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(3)); }, {2, 7, 7}),

      // Shapes
      unary<nn::Flatten>("Flatten", [] { return nn::Flatten(); }, {3, 4}),
      unary<nn::Upsample>("UpsampleNearest", [] { return nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)); }, {2, 3, 3}),
      unary<nn::Upsample>("UpsampleBilinear", [] { return nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{5, 6}).mode(torch::kBilinear).align_corners(false)); }, {2, 3, 3}),
      unary<nn::PixelShuffle>("PixelShuffle", [] { return nn::PixelShuffle(2); }, {8, 3, 3}),
      unary<nn::PixelUnshuffle>("PixelUnshuffle", [] { return nn::PixelUnshuffle(2); }, {2, 4, 4}),
      unary<nn::ReflectionPad2d>("ReflectionPad2d", [] { return nn::ReflectionPad2d(1); }, {2, 4, 4}),
      unary<nn::ReplicationPad2d>("ReplicationPad2d", [] { return nn::ReplicationPad2d(1); }, {2, 4, 4}),
      unary<nn::ConstantPad1d>("ConstantPad1d", [] { return nn::ConstantPad1d(2, 1.5); }, {2, 4}),
      unary<nn::ZeroPad2d>("ZeroPad2d", [] { return nn::ZeroPad2d(1); }, {2, 4, 4}),

      // Dropout: the same seed gives the same masks
      unary<nn::Dropout>("Dropout", [] { return nn::Dropout(0.4); }, {6}),
      unary<nn::Dropout2d>("Dropout2d", [] { return nn::Dropout2d(0.4); }, {3, 4, 4}),
      unary<nn::AlphaDropout>("AlphaDropout", [] { return nn::AlphaDropout(0.4); }, {6}),

      // Activations
      unary<nn::PReLU>("PReLU", [] { return nn::PReLU(nn::PReLUOptions().num_parameters(3)); }, {3, 4}),
      unary<nn::ReLU>("ReLU", [] { return nn::ReLU(); }, {6}),
      unary<nn::RReLU>("RReLU", [] { return nn::RReLU(); }, {6}),
      unary<nn::GELU>("GELU", [] { return nn::GELU(); }, {6}),
      unary<nn::SiLU>("SiLU", [] { return nn::SiLU(); }, {6}),
      unary<nn::Mish>("Mish", [] { return nn::Mish(); }, {6}),
      unary<nn::ELU>("ELU", [] { return nn::ELU(); }, {6}),
      unary<nn::SELU>("SELU", [] { return nn::SELU(); }, {6}),
      unary<nn::LeakyReLU>("LeakyReLU", [] { return nn::LeakyReLU(); }, {6}),
      unary<nn::Hardtanh>("Hardtanh", [] { return nn::Hardtanh(); }, {6}),
      unary<nn::Softplus>("Softplus", [] { return nn::Softplus(); }, {6}),
      unary<nn::Softshrink>("Softshrink", [] { return nn::Softshrink(); }, {6}),
      unary<nn::LogSigmoid>("LogSigmoid", [] { return nn::LogSigmoid(); }, {6}),
      unary<nn::Softmax>("Softmax", [] { return nn::Softmax(1); }, {6}),
      unary<nn::LogSoftmax>("LogSoftmax", [] { return nn::LogSoftmax(1); }, {6}),
      unary<nn::Softmin>("Softmin", [] { return nn::Softmin(1); }, {6}),
      unary<nn::Softmax2d>("Softmax2d", [] { return nn::Softmax2d(); }, {3, 2, 2}),
      unary<nn::GLU>("GLU", [] { return nn::GLU(1); }, {6}),
      unary<nn::Threshold>("Threshold", [] { return nn::Threshold(0.1, 20); }, {6}),
  };
  return table;
}
// clang-format on

class Layers : public testing::TestWithParam<ModuleRow> {};

TEST_P(Layers, TrainAlikeWithUndefinedGrads) { train_with_both_engines(GetParam(), /*set_to_none=*/true); }

TEST_P(Layers, TrainAlikeWithZeroedGrads) { train_with_both_engines(GetParam(), /*set_to_none=*/false); }

TEST_P(Layers, TrainAlikeCompiledAheadOfTime) {
  train_compiled(GetParam(), partition::standard);
  train_compiled(GetParam(), partition::min_cut);
}

TEST_P(Layers, PassVerification) { train_with_verified_graphs(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Modules, Layers, testing::ValuesIn(rows()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hindcast::tests
