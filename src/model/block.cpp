#include "model/block.h"

#include "attention/mixer.h"
#include "cpu/decoding.h"
#include "cpu/rms_norm.h"
#include "ops/autocast.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/linear.h"
#include "ops/recompute.h"

namespace metaformer {

NormImpl::NormImpl(const NormConfig& config, std::int64_t width, bool bias) : config_(config) {
  weight_ = add_parameter("weight", width, {.init = Init::ones()});
  if (bias && has_bias(config)) bias_ = add_parameter("bias", width, {.init = Init::zeros()});
}

torch::Tensor NormImpl::forward(const torch::Tensor& x_bcd) {
  const auto normalise = [&]<class Config>(const Config& config) {
    if constexpr (std::is_same_v<Config, LayerNormConfig>)
      return torch::layer_norm(x_bcd, weight_.sizes(), weight_, bias_, config.epsilon);
    else if constexpr (std::is_same_v<Config, RmsNormConfig>)
      return rms_norm(x_bcd, weight_, config.epsilon);
  };
  return std::visit(normalise, config_);
}

std::optional<RowNorm> NormImpl::row_norm() const {
  const bool is_layer_norm = is<LayerNormConfig>(config_);
  if (!is_layer_norm && !is<RmsNormConfig>(config_)) return std::nullopt;
  return RowNorm{.centred = is_layer_norm, .gain_d = weight_, .bias_d = bias_, .epsilon = epsilon_of(config_)};
}

void NormImpl::normalise_rows(const float* x_rd, float* y_rd, std::int64_t rows) const {
  const auto* weight_d = weight_.const_data_ptr<float>();
  const auto* bias_d = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const auto width = weight_.size(0);
  const auto epsilon = static_cast<float>(epsilon_of(config_));
  const auto normalise = [&]<class Config>(const Config&) {
    if constexpr (std::is_same_v<Config, LayerNormConfig>)
      return metaformer::normalise_rows(x_rd, weight_d, bias_d, y_rd, rows, width, epsilon);
    else if constexpr (std::is_same_v<Config, RmsNormConfig>)
      return normalise_by_rms(x_rd, weight_d, y_rd, /*factors=*/nullptr, rows, width, epsilon);
    else
      static_assert(sizeof(Config) == 0, "the norm for sampling on the CPU");
  };
  std::visit(normalise, config_);
}

FeedForwardImpl::FeedForwardImpl(const TransformerConfig& config)
    : config_(config.feed_forward),
      up_(register_module("up", Linear(config.width, config.up_width(), config.bias, Init::normal(),
                                       /*hidden_matrices=*/config.up_width() / config.hidden_width()))),
      down_(register_module("down", Linear(config.hidden_width(), config.width, config.bias,
                                           Init::normal(branch_output_std(config.branches()))))) {}

// An activation or gate of a linear layer's result.
static torch::Tensor activated(torch::Tensor (*activation)(const ActivationConfig&, const torch::Tensor&,
                                                           const torch::Tensor&),
                               const ActivationConfig& config, Linear& layer, const torch::Tensor& x) {
  const auto& bias = layer->bias();
  if (!activation_adds_bias(bias)) return activation(config, layer(x), {});
  return activation(config, linear_product(x, layer->weight(), {}), bias);
}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x_bcd) {
  const auto feed_rows = [this](const torch::Tensor& x) {
    const auto feed = [&]<class Config>(const Config& config) -> torch::Tensor {
      if constexpr (std::is_same_v<Config, GatedConfig>) {
        return down_(activated(gate, config.activation, up_, x));
      } else if constexpr (std::is_same_v<Config, MlpConfig>) {
        const auto hidden = activated(activate, config.activation, up_, x);
        return config.output_activation ? activated(activate, config.activation, down_, hidden) : down_(hidden);
      } else {
        throw std::logic_error("no feed-forward branch");
      }
    };
    return std::visit(feed, config_);
  };
  if (chunks_of(config_) == 1) return feed_rows(x_bcd);
  const auto y_rd = recomputed_in_chunks(feed_rows, x_bcd.flatten(0, 1), parameters(), chunks_of(config_));
  return y_rd.view_as(x_bcd);
}

static std::shared_ptr<Mixer> make_block_mixer(const MixerConfig& mixer, MixerShape shape,
                                               const TransformerConfig& config, std::int64_t layer) {
  shape.output_std = branch_output_std(config.branches());
  shape.layer = layer;
  shape.layers = config.layers;
  shape.is_first_of_kind = config.is_first_of_kind(layer);
  return make_mixer(mixer, shape);
}

BlockImpl::BlockImpl(const TransformerConfig& config, std::int64_t layer)
    : norm_position_(position_of(config.norm)),
      has_residual_(config.residual),
      dropout_(config.dropout),
      mixer_norms_(register_norms("mixer", config)),
      mixer_(register_module("mixer", make_block_mixer(config.mixer_of(layer), config.mixer_shape(), config, layer))) {
  if (config.convolution > 0)
    convolution_ = register_module("convolution", ResidualConvolution(config.width, config.convolution));
  if (!config.has_feed_forward()) return;
  feed_forward_norms_ = register_norms("feed_forward", config);
  feed_forward_ = register_module("feed_forward", FeedForward(config));
}

BlockImpl::BlockImpl(const EncoderDecoderConfig& config, std::int64_t layer)
    : BlockImpl(static_cast<const TransformerConfig&>(config), layer) {
  cross_norms_ = register_norms("cross", config);
  cross_mixer_ =
      register_module("cross_mixer", make_block_mixer(config.cross_mixer, config.cross_shape(), config, layer));
}

BranchNorms BlockImpl::register_norms(const std::string& branch, const TransformerConfig& config) {
  const auto make = [&](const char* name) {
    return register_module(branch + name, Norm(config.norm, config.width, config.bias));
  };
  BranchNorms norms{.norm = make("_norm")};
  if (norm_position_ == NormPosition::both) norms.output_norm = make("_output_norm");
  return norms;
}

NextNorm BlockImpl::next_norm(const BranchNorms& norms, bool for_products) const {
  if (norm_position_ == NormPosition::post) return {};
  return {norms.norm.get(), for_products};
}

NextNorm BlockImpl::first_norm() const {
  return next_norm(mixer_norms_, mixer_->reads_by_products() && !has_convolution());
}

std::optional<NormedStream> BlockImpl::add_by_kernel(const torch::Tensor& to_bcd, const torch::Tensor& y_bcd,
                                                     const NextNorm& next, Pass& pass) const {
  if (next.norm == nullptr || norm_position_ == NormPosition::post || pass.probe != nullptr) return std::nullopt;
  const ResidualSum sum{.x_bcd = has_residual_ ? to_bcd : torch::Tensor(), .y_bcd = y_bcd, .dropout = dropout_};
  const auto norm = next.norm->row_norm();
  if (!norm || !residual_norm_fits(sum, *norm)) return std::nullopt;
  const auto type = next.for_products ? product_type(norm->gain_d) : torch::kFloat;
  const auto [sum_bcd, normed_bcd] = residual_norm(sum, *norm, type, pass);
  return NormedStream(sum_bcd, normed_bcd);
}

template <class Branch>
NormedStream BlockImpl::apply(const torch::Tensor& to_bcd, const NormedStream& read, BranchNorms& norms,
                              StreamPoint of_branch, StreamPoint after, const NextNorm& next, Pass& pass,
                              Branch branch) {
  const auto read_by_branch = [&] {
    if (norm_position_ == NormPosition::post) return read.x_bcd;
    return read.normed_bcd.defined() ? read.normed_bcd : norms.norm(read.x_bcd);
  };
  auto y_bcd = branch(read_by_branch());
  if (norm_position_ == NormPosition::both) y_bcd = norms.output_norm(y_bcd);
  if (auto added = add_by_kernel(to_bcd, y_bcd, next, pass)) return *std::move(added);
  y_bcd = dropout(y_bcd, dropout_, pass);
  pass.observe(of_branch, y_bcd);
  if (has_residual_) y_bcd = to_bcd + y_bcd;
  if (norm_position_ == NormPosition::post) y_bcd = norms.norm(y_bcd);
  pass.observe(after, y_bcd);
  return y_bcd;
}

NormedStream BlockImpl::add_mixer(const torch::Tensor& to_bcd, const NormedStream& x, const Surroundings& surroundings,
                                  const NextNorm& next, Pass& pass) {
  const auto& x_bcd = x.x_bcd;
  const auto& memory_bmd = surroundings.memory_bmd;
  const auto read = memory_bmd.defined() ? NormedStream(torch::cat({memory_bmd.to(x_bcd.scalar_type()), x_bcd}, 1)) : x;
  return apply(to_bcd, read, mixer_norms_, StreamPoint::mixer_branch, StreamPoint::after_mixer, next, pass,
               [&](const torch::Tensor& given_bed) {
                 const auto context_bed = has_convolution()
                                              ? convolution_(given_bed, surroundings.visibility, surroundings.state)
                                              : given_bed;
                 const auto newest_bcd =
                     memory_bmd.defined() ? context_bed.narrow(1, memory_bmd.size(1), x_bcd.size(1)) : context_bed;
                 pass.observe(StreamPoint::mixer_input, newest_bcd);
                 return mixer_->forward(newest_bcd, context_bed, surroundings.visibility, surroundings.state, pass);
               });
}

NormedStream BlockImpl::add_source(const NormedStream& x, const Surroundings& surroundings, const NextNorm& next,
                                   Pass& pass) {
  const auto& source = *surroundings.source;
  return apply(x.x_bcd, x, cross_norms_, StreamPoint::cross_branch, StreamPoint::after_cross, next, pass,
               [&](const torch::Tensor& y_bcd) {
                 return cross_mixer_->forward(y_bcd, source.context_bsd, source.visibility, surroundings.source_state,
                                              pass);
               });
}

NormedStream BlockImpl::add_feed_forward(const torch::Tensor& to_bcd, const NormedStream& x, const NextNorm& next,
                                         Pass& pass) {
  if (feed_forward_.is_empty()) {
    pass.observe(StreamPoint::feed_forward_branch, torch::zeros_like(to_bcd));
    pass.observe(StreamPoint::after_feed_forward, to_bcd);
    return to_bcd.is_same(x.x_bcd) ? x : NormedStream(to_bcd);
  }
  return apply(to_bcd, x, feed_forward_norms_, StreamPoint::feed_forward_branch, StreamPoint::after_feed_forward, next,
               pass, [&](const torch::Tensor& y_bcd) { return feed_forward_(y_bcd); });
}

NormedStream BlockImpl::forward(const NormedStream& x, const Surroundings& surroundings, const NextNorm& next,
                                Pass& pass) {
  const auto before_last = feed_forward_.is_empty() ? next : next_norm(feed_forward_norms_, /*for_products=*/true);
  const bool sees_source = cross_mixer_ != nullptr;
  auto y = add_mixer(x.x_bcd, x, surroundings,
                     sees_source ? next_norm(cross_norms_, cross_mixer_->reads_by_products()) : before_last, pass);
  if (sees_source) y = add_source(y, surroundings, before_last, pass);
  return add_feed_forward(y.x_bcd, y, next, pass);
}

}  // namespace metaformer
