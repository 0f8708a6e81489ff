// Mixers without scores.

#include <algorithm>
#include <vector>

#include "attention/mixer.h"

namespace metaformer {

namespace {

// Average pooling (PoolFormer, Yu et al. 2022): the mean over a window of visible tokens, minus the token itself.
// Stride 1; places beyond an edge, in another segment or in padding do not count.

// The mean over the newest tokens (a window or all), minus the newest token.
class PoolingDecoder : public MixerDecoder {
 public:
  PoolingDecoder(PoolingWindow window, std::int64_t batch) : window_(window), batch_(batch) {}

  void resume(MixerState& state) override {
    state_ = &state;
    const auto& seen_bed = state.buffer(0);
    capacity_ = seen_bed.size(1);
    width_ = seen_bed.size(2);
    tokens_ = seen_bed.data_ptr<float>();
    sums_.assign(static_cast<std::size_t>(batch_ * width_), 0.0);
    for (std::int64_t e = first_of_window(state.length(0)); e < state.length(0); ++e) count_in(e, 1);
  }

  void step(const float* x_bd, float* y_bd) override {
    const auto newest = state_->append(0);
    for (std::int64_t b = 0; b < batch_; ++b) std::copy_n(x_bd + b * width_, width_, row(b, newest));
    count_in(newest, 1);
    const auto first = first_of_window(newest + 1);
    if (first > first_of_window(newest)) count_in(first - 1, -1);
    const auto count = static_cast<double>(newest + 1 - first);
    for (std::size_t i = 0; i < sums_.size(); ++i) y_bd[i] = static_cast<float>(sums_[i] / count) - x_bd[i];
  }

 private:
  float* row(std::int64_t b, std::int64_t token) const { return tokens_ + (b * capacity_ + token) * width_; }
  std::int64_t first_of_window(std::int64_t count) const {
    return window_.all() ? 0 : std::max<std::int64_t>(0, count - window_.tokens);
  }
  void count_in(std::int64_t token, double factor) {
    for (std::int64_t b = 0; b < batch_; ++b)
      for (std::int64_t i = 0; i < width_; ++i)
        sums_[static_cast<std::size_t>(b * width_ + i)] += factor * row(b, token)[i];
  }

  PoolingWindow window_;
  std::int64_t batch_, capacity_ = 0, width_ = 0;
  std::vector<double> sums_;  // [b, d], over the window; double, because tokens that leave it are subtracted
  MixerState* state_ = nullptr;
  float* tokens_ = nullptr;  // in the state, [b, capacity, d]
};

class AveragePooling : public Mixer {
 public:
  AveragePooling(const AveragePoolingOptions& options, std::int64_t width) : options_(options), width_(width) {}

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass&) override {
    TORCH_CHECK(is_end_of(x_bcd, context_bed), "average pooling mixes a sequence with itself");
    const auto seen_bed = state != nullptr ? state->extend(0, x_bcd) : context_bed;
    const bool narrow_window = !options_.window.all() && options_.window.tokens <= most_shifts;
    if (options_.backend == Backend::reference || visibility.place_1.defined())
      return pool_by_weights(x_bcd, seen_bed, visibility);
    if (narrow_window) return pool_by_shifts(x_bcd, seen_bed, visibility);
    if (options_.window.all() && !visibility.has_segments()) return pool_everything(x_bcd, seen_bed, visibility.causal);
    return pool_by_weights(x_bcd, seen_bed, visibility);
  }

  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t, WeightPrecision) const override {
    return std::make_unique<PoolingDecoder>(options_.window, batch);
  }

  // No products of matrices; the reference has a weight for every pair.
  MixerCost cost(const MixerLoad&) const override {
    return {.activations = width_, .keeps_pairs = options_.backend == Backend::reference};
  }

 private:
  static constexpr std::int64_t most_shifts = 32;

  // The number of tokens in the window before its centre, and after it.
  std::pair<std::int64_t, std::int64_t> reach(bool causal) const {
    const auto window = options_.window.tokens;
    return causal ? std::pair(window - 1, std::int64_t{0}) : std::pair(window / 2, (window - 1) / 2);
  }

  // The definition, for every visibility: a matrix of weights 1 / (tokens in the window).
  torch::Tensor pool_by_weights(const torch::Tensor& x_bcd, const torch::Tensor& seen_bed,
                                const Visibility& visibility) const {
    const auto queries = x_bcd.size(1), keys = seen_bed.size(1);
    const auto offset = offset_ce(visibility, queries, keys, x_bcd.device());
    const auto [before, after] = reach(visibility.causal);
    auto counted = torch::ones_like(offset, torch::kBool).unsqueeze(0);
    if (!options_.window.all()) counted = (offset >= -before).logical_and(offset <= after).unsqueeze(0);
    if (const auto visible = visible_bce(visibility, queries, keys, x_bcd.device()); visible.defined())
      counted = counted.logical_and(visible);
    const auto weight_bce = counted.to(seen_bed.scalar_type());
    const auto count_bc1 = counted.sum(2, true).to(seen_bed.scalar_type());
    const auto mean = torch::matmul(weight_bce, seen_bed) / count_bc1.clamp_min(1);
    return mean - x_bcd * (count_bc1 > 0);
  }

  // A sum of a few shifted tensors.
  torch::Tensor pool_by_shifts(const torch::Tensor& x_bcd, const torch::Tensor& seen_bed,
                               const Visibility& visibility) const {
    const auto [before, after] = reach(visibility.causal);
    const auto queries = x_bcd.size(1), keys = seen_bed.size(1), first = keys - queries;
    const bool segmented = visibility.has_segments();
    auto sum = torch::zeros_like(x_bcd);
    auto count_bc1 = torch::zeros({segmented ? x_bcd.size(0) : 1, queries, 1}, x_bcd.options());
    for (auto offset = -before; offset <= after; ++offset) {
      // Queries low ... high - 1 have a token at this offset.
      const auto low = std::max<std::int64_t>(0, -first - offset);
      const auto high = std::min<std::int64_t>(queries, keys - first - offset);
      if (low >= high) continue;
      const auto there_bcd = seen_bed.narrow(1, first + low + offset, high - low);
      auto sum_here = sum.narrow(1, low, high - low), count_here = count_bc1.narrow(1, low, high - low);
      if (!segmented) {
        sum_here.add_(there_bcd);
        count_here.add_(1);
        continue;
      }
      const auto own = visibility.query_segment_bc.narrow(1, low, high - low);
      const auto other = visibility.key_segment_be.narrow(1, first + low + offset, high - low);
      const auto counted = (own == other).logical_and_(own >= 0).unsqueeze(2).to(x_bcd.scalar_type());
      sum_here.addcmul_(there_bcd, counted);
      count_here.add_(counted);
    }
    if (!segmented) return sum / count_bc1 - x_bcd;
    return sum / count_bc1.clamp_min(1) - x_bcd * (count_bc1 > 0);
  }

  // Without segments: the running mean, or the mean of all tokens; summed in at least float32.
  static torch::Tensor pool_everything(const torch::Tensor& x_bcd, const torch::Tensor& seen_bed, bool causal) {
    const auto wide = seen_bed.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    const auto queries = x_bcd.size(1), keys = seen_bed.size(1);
    if (!causal) return seen_bed.to(wide).mean(1, true).to(x_bcd.scalar_type()) - x_bcd;
    const auto count_c1 =
        torch::arange(keys - queries + 1, keys + 1, torch::TensorOptions().dtype(wide).device(x_bcd.device()))
            .unsqueeze(1);
    const auto sum = seen_bed.to(wide).cumsum(1).narrow(1, keys - queries, queries);
    return (sum / count_c1).to(x_bcd.scalar_type()) - x_bcd;
  }

  AveragePoolingOptions options_;
  std::int64_t width_;
};

// The two controls of the ablation: a branch that returns its input, and no branch at all. Neither mixes tokens.

class ControlDecoder : public MixerDecoder {
 public:
  ControlDecoder(float share, std::int64_t count) : share_(share), count_(count) {}
  void resume(MixerState&) override {}
  void step(const float* x_bd, float* y_bd) override {
    std::transform(x_bd, x_bd + count_, y_bd, [&](float x) { return share_ * x; });
  }

 private:
  float share_;
  std::int64_t count_;
};

// A token times `share`, 1 or 0.
class Control : public Mixer {
 public:
  Control(float share, std::int64_t width) : share_(share), width_(width) {}
  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor&, const Visibility& visibility, MixerState*,
                        Pass&) override {
    if (share_ == 0) return torch::zeros_like(x_bcd);
    // Padding gives zeros here as in every mixer.
    return visibility.has_segments() ? x_bcd * (visibility.query_segment_bc >= 0).unsqueeze(2) : x_bcd;
  }
  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t, WeightPrecision) const override {
    return std::make_unique<ControlDecoder>(share_, batch * width_);
  }

  MixerCost cost(const MixerLoad&) const override { return {.activations = width_}; }

 private:
  float share_;
  std::int64_t width_;
};

}  // namespace

std::shared_ptr<Mixer> AveragePoolingOptions::make(const MixerShape& shape) const {
  return std::make_shared<AveragePooling>(*this, shape.width);
}

std::shared_ptr<Mixer> IdentityOptions::make(const MixerShape& shape) const {
  return std::make_shared<Control>(1.0F, shape.width);
}

std::shared_ptr<Mixer> NoneOptions::make(const MixerShape& shape) const {
  return std::make_shared<Control>(0.0F, shape.width);
}

}  // namespace metaformer
