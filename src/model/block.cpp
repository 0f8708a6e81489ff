#include "model/block.h"

#include "attention/mixers.h"
#include "cpu/decoding.h"
#include "cpu/rms_norm.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/linear.h"
#include "ops/recompute.h"

namespace metaformer {

NormImpl::NormImpl(const NormConfig& config, std::int64_t width, bool bias) : config_(config) {
  weight_ = add_parameter("weight", width, {.init = Init::ones()});
  if (bias && has_bias(config)) bias_ = add_parameter("bias", width, {.init = Init::zeros()});
}

namespace {

torch::Tensor normalised(const LayerNormConfig& config, const torch::Tensor& x_bcd, const torch::Tensor& weight_d,
                         const torch::Tensor& bias_d) {
  return torch::layer_norm(x_bcd, weight_d.sizes(), weight_d, bias_d, config.epsilon);
}
torch::Tensor normalised(const RmsNormConfig& config, const torch::Tensor& x_bcd, const torch::Tensor& weight_d,
                         const torch::Tensor&) {
  return rms_norm(x_bcd, weight_d, config.epsilon);
}

// The same of vectors on the CPU; no bias: nullptr.
struct Rows {
  const float *x_rd, *weight_d, *bias_d;
  float* y_rd;
  std::int64_t count, width;
};
void normalise(const LayerNormConfig& config, const Rows& rows) {
  normalise_rows(rows.x_rd, rows.weight_d, rows.bias_d, rows.y_rd, rows.count, rows.width,
                 static_cast<float>(config.epsilon));
}
void normalise(const RmsNormConfig& config, const Rows& rows) {
  normalise_by_rms(rows.x_rd, rows.weight_d, rows.y_rd, /*factors=*/nullptr, rows.count, rows.width,
                   static_cast<float>(config.epsilon));
}

}  // namespace

torch::Tensor NormImpl::forward(const torch::Tensor& x_bcd) {
  return std::visit([&](const auto& options) { return normalised(options, x_bcd, weight_, bias_); }, config_);
}

void NormImpl::normalise_rows(const float* x_rd, float* y_rd, std::int64_t rows) const {
  const Rows all{.x_rd = x_rd,
                 .weight_d = weight_.const_data_ptr<float>(),
                 .bias_d = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr,
                 .y_rd = y_rd,
                 .count = rows,
                 .width = weight_.size(0)};
  std::visit([&](const auto& options) { normalise(options, all); }, config_);
}

FeedForwardImpl::FeedForwardImpl(const TransformerConfig& config)
    : config_(config.feed_forward),
      up_(register_module("up", Linear(config.width, config.up_width(), config.bias, Init::normal(),
                                       /*hidden_matrices=*/config.up_width() / config.hidden_width()))),
      down_(register_module("down", Linear(config.hidden_width(), config.width, config.bias,
                                           Init::normal(branch_output_std(config.layers))))) {}

static torch::Tensor feed(const MlpConfig& config, Linear& up, Linear& down, const torch::Tensor& x_bcd) {
  const auto y_bcd = down(activate(config.activation, up(x_bcd)));
  return config.output_activation ? activate(config.activation, y_bcd) : y_bcd;
}

static torch::Tensor feed(const GatedConfig& config, Linear& up, Linear& down, const torch::Tensor& x_bcd) {
  return down(gate(config.activation, up(x_bcd)));
}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x_bcd) {
  const auto feed_rows = [this](const torch::Tensor& x) {
    return std::visit([&](const auto& config) { return feed(config, up_, down_, x); }, config_);
  };
  if (chunks_of(config_) == 1) return feed_rows(x_bcd);
  const auto y_rd = recomputed_in_chunks(feed_rows, x_bcd.flatten(0, 1), parameters(), chunks_of(config_));
  return y_rd.view_as(x_bcd);
}

static MixerShape mixer_shape(const TransformerConfig& config) {
  auto shape = config.mixer_shape();
  shape.output_std = branch_output_std(config.layers);
  return shape;
}

BlockImpl::BlockImpl(const TransformerConfig& config)
    : norm_position_(position_of(config.norm)),
      has_residual_(config.residual),
      dropout_(config.dropout),
      mixer_norms_(register_norms("mixer", config)),
      mixer_(register_module("mixer", make_mixer(config.mixer, mixer_shape(config)))),
      feed_forward_norms_(register_norms("feed_forward", config)),
      feed_forward_(register_module("feed_forward", FeedForward(config))) {}

BlockImpl::BlockImpl(const EncoderDecoderConfig& config) : BlockImpl(static_cast<const TransformerConfig&>(config)) {
  auto shape = config.cross_shape();
  shape.output_std = branch_output_std(config.layers);
  cross_norms_ = register_norms("cross", config);
  cross_mixer_ = register_module("cross_mixer", make_mixer(config.cross_mixer, shape));
}

BranchNorms BlockImpl::register_norms(const std::string& branch, const TransformerConfig& config) {
  const auto make = [&](const char* name) {
    return register_module(branch + name, Norm(config.norm, config.width, config.bias));
  };
  BranchNorms norms{.norm = make("_norm")};
  if (norm_position_ == NormPosition::both) norms.output_norm = make("_output_norm");
  return norms;
}

template <class Branch>
torch::Tensor BlockImpl::apply(const torch::Tensor& to_bcd, BranchNorms& norms, Pass& pass,
                               const ObservedBranch& observed, Branch branch) {
  auto y_bcd = branch();
  if (norm_position_ == NormPosition::both) y_bcd = norms.output_norm(y_bcd);
  y_bcd = dropout(y_bcd, dropout_, pass);
  pass.observe(observed.branch, y_bcd);
  if (has_residual_) y_bcd = to_bcd + y_bcd;
  if (norm_position_ == NormPosition::post) y_bcd = norms.norm(y_bcd);
  pass.observe(observed.after, y_bcd);
  return y_bcd;
}

torch::Tensor BlockImpl::read(const torch::Tensor& x_bcd, BranchNorms& norms) {
  return norm_position_ == NormPosition::post ? x_bcd : norms.norm(x_bcd);
}

BlockImpl::MixerInput BlockImpl::mixer_input(const torch::Tensor& x_bcd, const torch::Tensor& memory_bmd) {
  if (!memory_bmd.defined()) {
    const auto read_bcd = read(x_bcd, mixer_norms_);
    return {read_bcd, read_bcd};
  }
  const auto context_bed = read(torch::cat({memory_bmd.to(x_bcd.scalar_type()), x_bcd}, 1), mixer_norms_);
  return {context_bed.narrow(1, memory_bmd.size(1), x_bcd.size(1)), context_bed};
}

torch::Tensor BlockImpl::add_mixer(const torch::Tensor& to_bcd, const torch::Tensor& x_bcd,
                                   const Surroundings& surroundings, Pass& pass) {
  constexpr ObservedBranch points{.branch = StreamPoint::mixer_branch, .after = StreamPoint::after_mixer};
  return apply(to_bcd, mixer_norms_, pass, points, [&] {
    const auto [y_bcd, context_bed] = mixer_input(x_bcd, surroundings.memory_bmd);
    return mixer_->forward(y_bcd, context_bed, surroundings.visibility, surroundings.state, pass);
  });
}

torch::Tensor BlockImpl::add_source(const torch::Tensor& x_bcd, const Surroundings& surroundings, Pass& pass) {
  constexpr ObservedBranch points{.branch = StreamPoint::cross_branch, .after = StreamPoint::after_cross};
  const auto& source = *surroundings.source;
  return apply(x_bcd, cross_norms_, pass, points, [&] {
    return cross_mixer_->forward(read(x_bcd, cross_norms_), source.context_bsd, source.visibility,
                                 surroundings.source_state, pass);
  });
}

torch::Tensor BlockImpl::add_feed_forward(const torch::Tensor& to_bcd, const torch::Tensor& x_bcd, Pass& pass) {
  constexpr ObservedBranch points{.branch = StreamPoint::feed_forward_branch, .after = StreamPoint::after_feed_forward};
  return apply(to_bcd, feed_forward_norms_, pass, points,
               [&] { return feed_forward_(read(x_bcd, feed_forward_norms_)); });
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x_bcd, const Surroundings& surroundings, Pass& pass) {
  auto y_bcd = add_mixer(x_bcd, x_bcd, surroundings, pass);
  if (cross_mixer_ != nullptr) y_bcd = add_source(y_bcd, surroundings, pass);
  return add_feed_forward(y_bcd, y_bcd, pass);
}

}  // namespace metaformer
