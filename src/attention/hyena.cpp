// Hyena (Poli et al. 2023, section 3): [x_0 | x_1 | ... | v] = convolution(W_in x), then v is replaced by
//
//   h_i * (x_i v) + D_i x_i v   for each x_i from the last to x_1,   and y = W_out (x_0 v)
//
// where h_i is a filter over all distances: for each feature the output of a network for the distance, times a decay.

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "attention/state_mixer.h"

namespace metaformer {

namespace {

using torch::Tensor;

Tensor same(const Tensor& one, const Tensor& other) { return (one == other).logical_and(one >= 0); }

// The convolution at the last token only, for generation.
Tensor of_newest(const Tensor& z_bed, const Tensor& filter_ld, const Tensor& segment_be) {
  const auto e = z_bed.size(1);
  auto seen_bed = z_bed * filter_ld.narrow(0, 0, e).flip(0);
  if (segment_be.defined()) seen_bed = seen_bed * same(segment_be, segment_be.narrow(1, e - 1, 1)).unsqueeze(2);
  return seen_bed.sum(1, true);
}

// The sums of the convolution over distances from `least` on, as products of pairs of blocks of `size` tokens.
class BlockProducts {
 public:
  BlockProducts(const Tensor& z_bed, const Tensor& filter_ld, Tensor segment_be, std::int64_t size, std::int64_t least)
      : size_(size), count_((z_bed.size(1) + size - 1) / size) {
    const auto e = z_bed.size(1), l = filter_ld.size(0), behind = count_ * size - e;
    z_dbjs_ = torch::constant_pad_nd(z_bed, {0, 0, 0, behind})
                  .view({z_bed.size(0), count_, size, z_bed.size(2)})
                  .permute({3, 0, 1, 2});
    // The filter of distance t is at index t + 1; index 0, for negative distances, and distances outside the filter are
    // zero.
    filter_dl_ = torch::constant_pad_nd(filter_ld.narrow(0, least, l - least), {0, 0, least + 1, behind + size}).t();
    if (!segment_be.defined()) return;
    segment_bjs_ = torch::constant_pad_nd(segment_be, {0, behind}, -1).view({z_bed.size(0), count_, size});
    z_dbjs_ = z_dbjs_ * same(segment_bjs_, segment_bjs_.narrow(2, size - 1, 1));  // continues into the next block
  }

  // All sums, [b, e, d].
  Tensor sums(std::int64_t first_lag, std::int64_t e) {
    auto y_dbjs = torch::zeros_like(z_dbjs_);
    for (auto lag = first_lag; lag < count_; ++lag) {
      const auto read_dbjs = z_dbjs_.narrow(2, 0, count_ - lag);
      auto part_dbjs = torch::bmm(read_dbjs.flatten(1, 2), filter_block_dsr(lag)).view_as(read_dbjs);
      if (segment_bjs_.defined()) {
        const auto end_bj1 = segment_bjs_.narrow(1, 0, count_ - lag).narrow(2, size_ - 1, 1);
        part_dbjs = part_dbjs * same(segment_bjs_.narrow(1, lag, count_ - lag), end_bj1);
      }
      y_dbjs = y_dbjs + torch::constant_pad_nd(part_dbjs, {0, 0, lag, 0});
    }
    return y_dbjs.permute({1, 2, 3, 0}).flatten(1, 2).narrow(1, 0, e);
  }

 private:
  // filter_(lag size + r - s) for places s and r in two blocks that are `lag` blocks apart.
  Tensor filter_block_dsr(std::int64_t lag) const {
    const auto place = torch::arange(size_, torch::TensorOptions().dtype(torch::kLong).device(filter_dl_.device()));
    const auto distance_sr = lag * size_ + place.unsqueeze(0) - place.unsqueeze(1);
    return filter_dl_.index_select(1, (distance_sr + 1).clamp_min(0).flatten()).view({-1, size_, size_});
  }

  std::int64_t size_, count_;
  Tensor z_dbjs_, filter_dl_, segment_bjs_;
};

// y_t = sum_s filter_(t - s) z_s over s <= t, in float32 or wider, for the last `newest` tokens of z_bed:
// [b, newest, d], in the type of z. `filter_ld`: of distances 0 ... l - 1, l at least e. Only tokens of one segment see
// each other, and a segment's tokens are adjacent; undefined segments: one. Computed by the sums themselves, or on a
// GPU and for long texts as products of blocks, b d e^2 / 2 in all. Unlike with a Fourier transform, no token depends
// on a later one, not even by rounding.
Tensor long_convolution(const Tensor& z_bed, const Tensor& filter_ld, const Tensor& segment_be, std::int64_t newest) {
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  const auto z = in_wide(z_bed), filter = in_wide(filter_ld);
  const auto e = z.size(1), l = filter.size(0);
  constexpr std::int64_t longest_for_sums = 2048;  // beyond, products are as fast or faster
  if (z.is_cpu() && z.scalar_type() == torch::kFloat && e <= longest_for_sums)
    return causal_convolution({.filter_dj = filter.narrow(0, 0, e).flip(0).t()}, z, segment_be, newest)
        .to(z_bed.scalar_type());
  if (newest == 1) return of_newest(z, filter, segment_be).to(z_bed.scalar_type());
  Tensor y_bed;
  if (segment_be.defined()) {
    // Segments may begin within a block, so distances below the size of a block are computed one at a time.
    constexpr std::int64_t size = 16;
    const auto reach = std::min(size, l);
    y_bed = causal_convolution({.filter_dj = filter.narrow(0, 0, reach).flip(0).t()}, z, segment_be, e);
    if (e > size) y_bed = y_bed + BlockProducts(z, filter, segment_be, size, /*least=*/size).sums(/*first_lag=*/1, e);
  } else {
    y_bed = BlockProducts(z, filter, {}, /*size=*/64, /*least=*/0).sums(/*first_lag=*/0, e);
  }
  return y_bed.narrow(1, e - newest, newest).to(z_bed.scalar_type());
}

class Hyena : public Mixer {
 public:
  Hyena(const HyenaOptions& options, const MixerShape& shape)
      : options_(options),
        shape_(shape),
        projected_(register_module("input", Convolved(shape, (options.order + 1) * shape.width, options.convolution,
                                                      /*matrices=*/options.order + 1))),
        output_(
            register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)))) {
    const auto hidden = options.filter_width, filters = (options.order - 1) * shape.width;
    const auto add = [&](const char* name, std::vector<std::int64_t> sizes) {
      return add_parameter(name, sizes, {.init = Init::uniform(1 / std::sqrt(static_cast<double>(sizes.back())))});
    };
    // No weight decay acts on the network.
    weights_ = {add("filter_in", {hidden, 1 + 2 * bands}), add("filter_hidden_0", {hidden, hidden}),
                add("filter_hidden_1", {hidden, hidden})};
    filter_out_ = add("filter_out", {filters, hidden});
    for (std::size_t i = 0; i < weights_.size(); ++i)
      offsets_.push_back(add_parameter(fmt::format("filter_offset_{}", i), hidden, {.init = Init::zeros()}));
    frequency_ = add_parameter("frequency", torch::full({hidden}, 14.0, module_device()), {.init = Init::given()});
    direct_ = add_parameter("direct", filters, {.init = Init::normal(1)});
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass&) override {
    TORCH_CHECK(is_end_of(x_bcd, context_bed), "hyena mixes a sequence with itself");
    const auto& segment_be = visibility.key_segment_be;
    const auto before = state != nullptr ? state->tokens_before(0) : 0;
    const auto filters_ld = at_place(filters(before + context_bed.size(1), x_bcd), visibility);
    const auto newest = [&](const torch::Tensor& y) { return y.narrow(1, y.size(1) - x_bcd.size(1), x_bcd.size(1)); };
    auto y_bcd = newest(read(context_bed, segment_be, filters_ld, state));
    if (!visibility.causal && options_.direction == StateDirection::both) {
      const auto backwards = segment_be.defined() ? segment_be.flip(1) : segment_be;
      y_bcd = y_bcd + read(x_bcd.flip(1), backwards, filters_ld, nullptr).flip(1);
    }
    return without_padding(output_(y_bcd), visibility);
  }

  // Counts a product for every feature and pair of tokens, as in all forms of the convolutions.
  MixerCost cost(const MixerLoad& load) const override {
    const auto order = static_cast<double>(options_.order), d = static_cast<double>(shape_.width);
    const std::int64_t passes = !load.causal && options_.direction == StateDirection::both ? 2 : 1;
    const double pairs = passes == 2 ? load.tokens * (static_cast<double>(load.context) + 1) : load.pairs;
    return {.operations =
                2 * load.tokens * (static_cast<double>(passes) * (order + 1) + 1) * d * d + 2 * (order - 1) * pairs * d,
            .activations = passes * (3 * options_.order + 2) * shape_.width};
  }

 private:
  static constexpr std::int64_t bands = 16;

  // The filters of distances 0 ... l - 1, [l, d (order - 1)].
  torch::Tensor filters(std::int64_t distances, const torch::Tensor& like) {
    const auto options = torch::TensorOptions().dtype(torch::kDouble).device(like.device());
    const auto context = static_cast<double>(shape_.context);
    const auto distance_l1 = torch::arange(distances, options).unsqueeze(1);
    const auto time_l1 = distance_l1 / std::max(context - 1, 1.0);
    const auto angle_lw =
        distance_l1 * (2 * std::numbers::pi / context) * torch::linspace(1e-4, bands - 1, bands, options);
    // In float64, because rounding in the sines of large multiples of sums would otherwise show in the gradients.
    auto x = torch::cat({time_l1, angle_lw.cos(), -angle_lw.sin()}, 1);
    const auto wide = [](const torch::Tensor& parameter) { return parameter.to(torch::kDouble); };
    for (std::size_t i = 0; i < weights_.size(); ++i)
      x = torch::sin(wide(frequency_) * torch::linear(x, wide(weights_[i]), wide(offsets_[i])));
    // The first feature decays to 1% within 1.5 contexts, the last within 0.3.
    const auto rate_d = torch::linspace(std::log(100) / 1.5, std::log(100) / 0.3, filter_out_.size(0), options);
    const auto filters_ld = torch::linear(x, wide(filter_out_)) * (-time_l1 * rate_d).exp();
    return filters_ld.to(torch::promote_types(like.scalar_type(), torch::kFloat));
  }

  // With a place of the query: the filters by which the last key, at distance 0, would sum as the query there does.
  static torch::Tensor at_place(const torch::Tensor& filters_ld, const Visibility& visibility) {
    if (!visibility.place_1.defined()) return filters_ld;
    const auto distance_l = -offset_ce(visibility, 1, filters_ld.size(0), filters_ld.device()).squeeze(0).flip(0);
    return filters_ld.index_select(0, distance_l.clamp_min(0)) * (distance_l >= 0).unsqueeze(1);
  }

  torch::Tensor read(const torch::Tensor& x_bed, const torch::Tensor& segment_be, const torch::Tensor& filters_ld,
                     MixerState* state) {
    const auto width = shape_.width, e = x_bed.size(1);
    CarriedState carried(segment_be.defined() ? segment_be.narrow(1, segment_be.size(1) - e, e) : segment_be, state);
    const auto parts = projected_(x_bed, carried).split(width, 2);
    auto v_bed = parts.back();
    for (std::int64_t i = options_.order - 1; i > 0; --i) {
      const auto z_bed = v_bed * parts[static_cast<std::size_t>(i)];
      const auto all_bed = state != nullptr ? state->extend(static_cast<std::size_t>(i - 1), z_bed) : z_bed;
      const auto of_this = [&](const torch::Tensor& x, std::int64_t dim) {
        return x.narrow(dim, (i - 1) * width, width);
      };
      v_bed = long_convolution(all_bed, of_this(filters_ld, 1), segment_be, /*newest=*/e) + z_bed * of_this(direct_, 0);
    }
    return v_bed * parts.front();
  }

  HyenaOptions options_;
  MixerShape shape_;
  Convolved projected_;
  Linear output_;
  std::vector<torch::Tensor> weights_, offsets_;  // of the layers of the filter network
  torch::Tensor filter_out_, frequency_, direct_;
};

}  // namespace

std::shared_ptr<Mixer> HyenaOptions::make(const MixerShape& shape) const {
  return std::make_shared<Hyena>(*this, shape);
}

}  // namespace metaformer
