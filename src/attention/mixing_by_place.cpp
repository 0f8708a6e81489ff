// Mixers whose weights depend on the places of tokens in their text, and not on their content.

#include <cmath>
#include <limits>

#include "attention/mixer.h"
#include "attention/state_mixer.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

// The places of tokens in their segments, [b, e]; without segments in the row, [1, e].
torch::Tensor places_be(const torch::Tensor& segment_be, const torch::Tensor& x_bed) {
  if (segment_be.defined()) return positions_in_segments(segment_be);
  return torch::arange(x_bed.size(1), torch::TensorOptions().dtype(torch::kLong).device(x_bed.device())).unsqueeze(0);
}

// The vectors that a mixer reads, and their places; the queries are the newest of the keys.
struct PlacedTokens {
  torch::Tensor key_bed;
  torch::Tensor query_place_bc, key_place_be;  // [1, c] and [1, e] without segments
  bool in_row_order = false;                   // the places are numbers of the row, those of the queries the last ones
};

// `read_bed`: the vectors of the context, whose last `queries` tokens are the queries; with a state only those of the
// queries. `places`: the number of places for which the mixer has weights.
PlacedTokens placed(const torch::Tensor& read_bed, std::int64_t queries, const Visibility& visibility,
                    MixerState* state, std::int64_t places) {
  PlacedTokens tokens{.key_bed = state != nullptr ? state->extend(0, read_bed) : read_bed};
  tokens.in_row_order = !visibility.has_segments() && !visibility.place_1.defined();
  const auto e = tokens.key_bed.size(1);
  TORCH_CHECK(visibility.has_segments() || e <= places, "a mixer by places has weights for ", places,
              " tokens, not for ", e);
  tokens.key_place_be = places_be(visibility.key_segment_be, tokens.key_bed);
  tokens.query_place_bc = visibility.place_1.defined() ? visibility.place_1.unsqueeze(0)
                                                       : tokens.key_place_be.narrow(1, e - queries, queries);
  return tokens;
}

// The entries of a table for each query's and key's place, [n, b or 1, c, e].
torch::Tensor entries_nbce(const torch::Tensor& table_npp, const PlacedTokens& tokens) {
  const auto c = tokens.query_place_bc.size(1), e = tokens.key_place_be.size(1);
  if (tokens.in_row_order) return table_npp.narrow(1, e - c, c).narrow(2, 0, e).unsqueeze(1);
  const auto entry_bce = tokens.query_place_bc.unsqueeze(2) * table_npp.size(1) + tokens.key_place_be.unsqueeze(1);
  return table_npp.flatten(1).index_select(1, entry_bce.flatten()).view({table_npp.size(0), -1, c, e});
}

// A weighted mean of the visible tokens for each head. The weights are the softmax of a table with a number for every
// pair of places, initially uniform in 0 ... 1.
//
// random: one table for all features, which is never trained (RandFormer, in MetaFormer baselines, Yu et al. 2023).
// static: a learned table for each head (the random Synthesizer, Tay et al. 2021).
class MeanByPlace : public Mixer {
 public:
  MeanByPlace(const MixerShape& shape, AveragedValues values, bool learned)
      : heads_(learned ? shape.heads : 1), width_(shape.width) {
    constexpr Init from_0_to_1{.kind = Init::Kind::uniform, .low = 0, .high = 1};
    table_npp_ =
        add_parameter("table", {heads_, shape.context, shape.context}, {.init = from_0_to_1, .is_trained = learned});
    if (values == AveragedValues::inputs) return;
    value_ = register_module("value", Linear(width_, width_, shape.bias));
    output_ = register_module("output", Linear(width_, width_, shape.bias, Init::normal(shape.output_std)));
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass&) override {
    TORCH_CHECK(is_end_of(x_bcd, context_bed), "a mean by places mixes a sequence with itself");
    const auto c = x_bcd.size(1);
    const auto tokens =
        placed(value_.is_empty() ? context_bed : value_(context_bed), c, visibility, state, table_npp_.size(1));
    auto score_nbce = in_wide(entries_nbce(table_npp_, tokens));
    const auto visible = visible_bce(visibility, c, tokens.key_bed.size(1), x_bcd.device());
    if (visible.defined())
      score_nbce = score_nbce.masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity());
    const auto weight_bnce = torch::_safe_softmax(score_nbce, -1).to(tokens.key_bed.scalar_type()).transpose(0, 1);
    const auto mean_bcd = merge_heads(torch::matmul(weight_bnce, split_heads(tokens.key_bed, heads_)));
    if (output_.is_empty()) return mean_bcd;
    return without_padding(output_(mean_bcd), visibility);
  }

  MixerCost cost(const MixerLoad& load) const override {
    const auto d = static_cast<double>(width_);
    const double projections = output_.is_empty() ? 0 : 2;
    return {.operations = 2 * load.pairs * d + 2 * projections * load.tokens * d * d,
            .activations = (output_.is_empty() ? 1 : 3) * width_};
  }

 private:
  std::int64_t heads_, width_;
  Linear value_{nullptr}, output_{nullptr};  // only with values `own`
  torch::Tensor table_npp_;
};

// The spatial gating unit between two projections (gMLP, Liu et al. 2021, section 2), as the mixer of a block:
//
//   [u | v] = gelu(W_in x),   y_t = W_out (u_t * (sum_s A_ts norm(v)_s + b_t)),   A near 0 and b = 1 at the start
class SpatialGating : public Mixer {
 public:
  SpatialGating(const SpatialGatingOptions& options, const MixerShape& shape)
      : width_(options.gated_width(shape.width)),
        input_(register_module("input", Linear(shape.width, 2 * width_, shape.bias, Init::normal(), /*matrices=*/2))),
        output_(register_module("output", Linear(width_, shape.width, shape.bias, Init::normal(shape.output_std)))) {
    const auto context = shape.context;
    norm_weight_ = add_parameter("norm_weight", width_, {.init = Init::ones()});
    norm_bias_ = add_parameter("norm_bias", width_, {.init = Init::zeros()});
    table_1pp_ = add_parameter("table", {1, context, context},
                               {.init = Init::uniform(1e-3 / static_cast<double>(context)), .decay = Decay::matrices});
    offset_p_ = add_parameter("offset", context, {.init = Init::ones()});
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass&) override {
    TORCH_CHECK(is_end_of(x_bcd, context_bed), "spatial gating mixes a sequence with itself");
    const auto c = x_bcd.size(1);
    const auto parts = torch::gelu(input_(context_bed)).split(width_, 2);
    const auto norm_bef = torch::layer_norm(parts[1], {width_}, norm_weight_, norm_bias_);
    const auto tokens = placed(norm_bef, c, visibility, state, table_1pp_.size(1));
    auto weight_bce = entries_nbce(table_1pp_, tokens).squeeze(0).to(norm_bef.scalar_type());
    if (const auto visible = visible_bce(visibility, c, tokens.key_bed.size(1), x_bcd.device()); visible.defined())
      weight_bce = weight_bce * visible;
    const auto offset_bc1 = torch::embedding(offset_p_.unsqueeze(1), tokens.query_place_bc).to(norm_bef.scalar_type());
    const auto gated_bcf = parts[0].narrow(1, context_bed.size(1) - c, c);
    const auto sum_bcf = torch::matmul(weight_bce, tokens.key_bed) + offset_bc1;
    return without_padding(output_(gated_bcf * sum_bcf), visibility);
  }

  MixerCost cost(const MixerLoad& load) const override {
    const auto weights = static_cast<double>(input_->weight().numel() + output_->weight().numel());
    return {.operations = 2 * load.tokens * weights + 2 * load.pairs * static_cast<double>(width_),
            .activations = 8 * width_};
  }

 private:
  std::int64_t width_;  // f, the width of each half
  Linear input_, output_;
  torch::Tensor norm_weight_, norm_bias_;
  torch::Tensor table_1pp_, offset_p_;
};

// The real part of the discrete Fourier transform over the tokens of a text and over features (FNet, Lee-Thorp et al.
// 2022, section 3.2). It is orthonormal; the paper's is larger by sqrt(tokens features), which the norm after it
// cancels there.
class Fourier : public Mixer {
 public:
  explicit Fourier(std::int64_t width) : width_(width) {}

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState*, Pass&) override {
    TORCH_CHECK(context_bed.is_same(x_bcd) && !visibility.causal, "fourier mixes all tokens of a sequence");
    const auto wide = in_wide(x_bcd);
    if (!visibility.has_segments())
      return torch::real(torch::fft_fftn(wide, {}, std::vector<std::int64_t>{1, 2}, "ortho")).to(x_bcd.scalar_type());
    const auto over_features = torch::view_as_real(torch::fft_fft(wide, {}, 2, "ortho"));
    const auto place_bc = places_be(visibility.query_segment_bc, x_bcd);
    const auto visible = visible_bce(visibility, x_bcd.size(1), x_bcd.size(1), x_bcd.device());
    const auto length_bc1 = visible.sum(2, true).clamp_min(1);  // length of the token's text
    const auto turns =
        (place_bc.unsqueeze(2) * place_bc.unsqueeze(1)).remainder(length_bc1).to(torch::kDouble) / length_bc1;
    const auto angle = turns * (2 * M_PI);
    const auto factor = visible / length_bc1.to(torch::kDouble).sqrt();
    const auto of = [&](const torch::Tensor& wave) { return (wave * factor).to(wide.scalar_type()); };
    const auto y = torch::matmul(of(angle.cos()), over_features.select(3, 0)) +
                   torch::matmul(of(angle.sin()), over_features.select(3, 1));
    return y.to(x_bcd.scalar_type());
  }

  // Counts the two products over the pairs of tokens by which padded texts are computed; other texts use fast
  // transforms.
  MixerCost cost(const MixerLoad& load) const override {
    return {.operations = 4 * load.pairs * static_cast<double>(width_), .activations = 2 * width_};
  }

 private:
  std::int64_t width_;
};

}  // namespace

std::shared_ptr<Mixer> RandomOptions::make(const MixerShape& shape) const {
  return std::make_shared<MeanByPlace>(shape, averaged, /*learned=*/false);
}

std::shared_ptr<Mixer> StaticOptions::make(const MixerShape& shape) const {
  return std::make_shared<MeanByPlace>(shape, averaged, /*learned=*/true);
}

std::shared_ptr<Mixer> SpatialGatingOptions::make(const MixerShape& shape) const {
  return std::make_shared<SpatialGating>(*this, shape);
}

std::shared_ptr<Mixer> FourierOptions::make(const MixerShape& shape) const {
  return std::make_shared<Fourier>(shape.width);
}

}  // namespace metaformer
