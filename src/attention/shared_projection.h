#pragma once
// Metric and quadratic attention: their common base, with one projection for both sides of a score.

#include "attention/kernel_choice.h"
#include "attention/mixer_decoder.h"
#include "attention/score_attention.h"

namespace metaformer {

// The projection p, from which scores are made and which is mixed, unless values have a projection of their own. Where
// the context is another sequence, each side has its own projection, and scores compare the two: p_c of the queries,
// p_e of the context, which is mixed.
class SharedProjection {
 public:
  // Registers its parameters in `owner`. `qk_norm`: p is normalised per head; with a learned temperature it has no
  // gain.
  SharedProjection(Layer& owner, const MixerShape& shape, MixerValues values, bool qk_norm, bool learned_temperature);

  // The same tensor twice where values are shared.
  struct Vectors {
    torch::Tensor p_bnck, value_bnck;

    // The very tensors where these are all.
    Vectors newest(std::int64_t tokens) const {
      if (tokens == p_bnck.size(2)) return *this;
      const auto first = p_bnck.size(2) - tokens;
      return {p_bnck.narrow(2, first, tokens), value_bnck.narrow(2, first, tokens)};
    }
  };
  // Of x, and of all that it sees, with what comes from the state: p in slot 0, other values in slot 1. The vectors of
  // another sequence are computed once for a state, and then held.
  struct Sides {
    Vectors newest, seen;
  };
  Sides project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, MixerState* state);

  // The projection's rows of p, [n, k, d], for the context and for the queries.
  torch::Tensor rows_nkd() const { return rows_of(layer_); }
  torch::Tensor query_rows_nkd() const { return rows_of(query_layer_.is_empty() ? layer_ : query_layer_); }

  // Makes initial scores `factor` times what they were, where no form can be scaled: by the temperature, else by the
  // length of p. `output` undoes what that does to values that are p, too.
  void scale_scores(double factor, Linear& output);

  // The variance of an entry of p for scale_initial_scores; a gain counts as 1.
  double variance(double of_projection) const { return is_normalised() ? 1 : of_projection; }

  bool shares_values() const { return values_ == MixerValues::shared; }
  std::size_t value_slot() const { return shares_values() ? 0 : 1; }
  torch::Tensor gain_nk() const { return gain_of(norm_, shape_.heads); }  // undefined without qk_norm
  const torch::Tensor& temperature_n() const { return temperature_n_; }   // undefined: not learned
  bool is_normalised() const { return !norm_.is_empty(); }
  const Linear& layer() const { return layer_; }
  std::int64_t value_begin() const { return values_ == MixerValues::own ? shape_.width : 0; }  // in layer()'s outputs

 private:
  Vectors extended(const Vectors& newest, MixerState& state) const;
  Vectors vectors_of(const torch::Tensor& context_bed);
  torch::Tensor normalised(const torch::Tensor& p_bnck) { return is_normalised() ? norm_(p_bnck) : p_bnck; }
  torch::Tensor rows_of(const Linear& layer) const;

  MixerShape shape_;
  MixerValues values_;
  Linear layer_;                 // rows: p, then own values
  Linear query_layer_{nullptr};  // of p_c, where the context is another sequence
  HeadNorm norm_{nullptr};       // qk_norm only
  torch::Tensor temperature_n_;
};

// A mixer with scores p_c F p_e, where F is a form of each head, and with an output projection.
class FormMixer : public Mixer {
 protected:
  // `key_width`: features of the vectors that F compares.
  template <class Options>
  FormMixer(const Options& options, const MixerShape& shape, std::int64_t key_width)
      : shape_(shape),
        kernels_(kernel_use(options, shape)),
        projection_(*this, shape, options.values, options.qk_norm, options.learned_temperature),
        output_(
            register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)))),
        positions_(*this, shape, key_width) {}

  double scale() const;  // of scores

  // Attention by the kernels of cuda/ (kernel_choice.h).
  torch::Tensor attend_fused(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek, const torch::Tensor& form,
                             bool distance, const Visibility& visibility, Pass& pass);

  // The parts of a decoder that the projections determine.
  ScoreDecoderParts decoder_parts() const;

  MixerShape shape_;
  KernelUse kernels_;
  SharedProjection projection_;
  Linear output_;
  ScorePositions positions_;

 private:
  bool checked_ = false;  // the form is finite, as far as fused kernels must know
};

}  // namespace metaformer
