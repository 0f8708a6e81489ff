#pragma once
// The common base of metric and quadratic attention, whose scores are p_c F p_e with a form F of each head.

#include "attention/kernel_choice.h"
#include "attention/mixer_decoder.h"
#include "attention/score_attention.h"

namespace metaformer {

// The projection p is mixed, unless values have a projection of their own. Where the context is another sequence, each
// side has its own projection, and scores compare the two: p_c of the queries, p_e of the context, which is mixed.
class FormMixer : public Mixer {
 protected:
  // `key_width`: features of the vectors that F compares.
  template <class Options>
  FormMixer(const Options& options, const MixerShape& shape, std::int64_t key_width)
      : FormMixer(shape, kernel_use(options, shape), options.values, options.qk_norm, options.learned_temperature,
                  key_width) {}

  // The same tensor twice where values are shared.
  struct Vectors {
    torch::Tensor p_bnck, value_bnck;
  };
  // Of x, and of all that it sees, with what comes from the state: p in slot 0, other values in slot 1. The vectors of
  // another sequence are computed once for a state, and then held.
  struct Sides {
    Vectors newest, seen;
  };
  Sides project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, MixerState* state);

  // The rows of p, [n, k, d], of the projection of the context, or of the queries.
  torch::Tensor rows_nkd(const Linear& projection) const;
  const Linear& query_projection() const { return query_projection_.is_empty() ? projection_ : query_projection_; }

  // Makes initial scores `factor` times what they were, where no form can be scaled: by the temperature, else by the
  // length of p. The output projection undoes what that does to values that are p, too.
  void scale_scores(double factor);

  // The variance of an entry of p for scale_initial_scores; a gain counts as 1.
  double variance(double of_projection) const { return norm_.is_empty() ? of_projection : 1; }

  bool shares_values() const { return values_ == MixerValues::shared; }
  double scale() const;  // of scores

  // Attention by the kernels of cuda/ (kernel_choice.h).
  torch::Tensor attend_fused(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek, const torch::Tensor& form,
                             bool distance, const Visibility& visibility, Pass& pass);

  // The parts of a decoder that the projections determine.
  ScoreDecoderParts decoder_parts() const;

  MixerShape shape_;
  KernelUse kernels_;
  MixerValues values_;
  Linear projection_;                 // rows: p, then own values
  torch::Tensor temperature_n_;       // undefined: not learned
  Linear query_projection_{nullptr};  // of p_c, where the context is another sequence
  HeadNorm norm_{nullptr};            // qk_norm only: p is normalised per head; with a temperature it has no gain
  Linear output_{nullptr};
  std::optional<ScorePositions> positions_;  // made in the order of registration

 private:
  FormMixer(const MixerShape& shape, const KernelUse& kernels, MixerValues values, bool qk_norm,
            bool learned_temperature, std::int64_t key_width);
  Vectors vectors_of(const torch::Tensor& context_bed);
  Vectors extended(const Vectors& newest, MixerState& state) const;
  torch::Tensor normalised(const torch::Tensor& p_bnck) { return norm_.is_empty() ? p_bnck : norm_(p_bnck); }
  std::size_t value_slot() const { return shares_values() ? 0 : 1; }

  bool checked_ = false;  // the form is finite, as far as fused kernels must know
};

}  // namespace metaformer
