#include "attention/mixer_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/score_attention.h"
#include "cpu/rotary.h"
#include "ops/kernel.h"

namespace metaformer {

namespace {

constexpr std::int64_t products_worth_a_thread = 1 << 16;

std::int64_t grain_of(std::int64_t products_each) {
  return std::max<std::int64_t>(1, products_worth_a_thread / std::max<std::int64_t>(1, products_each));
}

class ScoreDecoder : public MixerDecoder {
 public:
  ScoreDecoder(ScoreDecoderParts parts, std::int64_t batch, std::int64_t capacity)
      : parts_(std::move(parts)),
        batch_(batch),
        heads_(parts_.shape.heads),
        key_heads_(parts_.key_heads == 0 ? heads_ : parts_.key_heads),
        value_width_(parts_.shape.head_width()),
        key_width_(parts_.from_inputs ? parts_.shape.width : value_width_),
        capacity_(capacity),
        scale_(1 / std::sqrt(static_cast<float>(value_width_))),
        projected_(floats(batch * parts_.projection.outputs())),
        query_(floats(batch * heads_ * key_width_)),
        scores_(floats(batch * heads_ * score_step())),
        mixed_(floats(batch * parts_.shape.width)) {
    prepare_positions();
    if (parts_.form_nkj.defined()) form_njk_ = parts_.form_nkj.transpose(1, 2).contiguous();
  }

  void resume(MixerState& state) override {
    state_ = &state;
    keys_ = state.buffer(parts_.key_slot).data_ptr<float>();
    values_ = state.buffer(parts_.value_slot).data_ptr<float>();
    for (std::int64_t e = 0; e < state.length(parts_.key_slot); ++e) {
      if (parts_.distance)
        for (std::int64_t row = 0; row < batch_ * heads_; ++row) set_offset(row, e);
      set_rotated_keys(e);
    }
  }

  void step(const float* x_bd, float* y_bd) override {
    parts_.projection.apply(x_bd, projected_.data(), batch_);
    const auto newest = append_token();
    const bool shared = parts_.key_slot == parts_.value_slot;
    if (!shared) keep(parts_.value_begin, values_, newest);  // before the norms, which values do not have
    normalise(parts_.key_gain_nk, parts_.key_begin, key_heads_);
    if (parts_.query_begin != parts_.key_begin) normalise(parts_.query_gain_nk, parts_.query_begin, heads_);
    if (parts_.from_inputs)
      for (std::int64_t b = 0; b < batch_; ++b)
        std::copy_n(x_bd + b * key_width_, key_width_, keys(b * heads_) + newest * key_width_);
    else
      keep(parts_.key_begin, keys_, newest);
    set_rotated_keys(newest);
    const auto form_products = form_njk_.defined() ? key_width_ * key_width_ : 0;
    const auto products = (newest + 1) * (key_width_ + value_width_) + form_products;
    at::parallel_for(0, batch_ * heads_, grain_of(products), [&](auto begin, auto end) {
      for (auto row = begin; row < end; ++row) attend(x_bd, row, newest);
    });
    parts_.output.apply(mixed_.data(), y_bd, batch_);
  }

 private:
  std::int64_t score_step() const { return (capacity_ + 15) / 16 * 16; }

  // Rotary positions need rotated copies of the state's keys. ALiBi's -slope (c - e) equals slope e up to a term that
  // is the same for every key, which the softmax cancels.
  void prepare_positions() {
    const auto& positions = parts_.shape.positions;
    if (parts_.distance || is<AlibiPositionsConfig>(positions)) score_offsets_ = floats(batch_ * heads_ * capacity_);
    if (const auto* rotary = std::get_if<RotaryPositionsConfig>(&positions)) {
      rotary_2cr_ = rotary_tables_2cr(*rotary, key_width_, capacity_).to(torch::kFloat);
      rotated_keys_ = floats(batch_ * stored_keys() * capacity_ * key_width_);
      rotated_query_ = query_;
    }
    if (!is<AlibiPositionsConfig>(positions)) return;
    slopes_ = alibi_slopes(heads_);
    for (std::int64_t row = 0; row < batch_ * heads_; ++row)
      for (std::int64_t e = 0; e < capacity_; ++e) score_offset(row, e) = alibi(row, e);
  }

  // The sink of a head. The scores are computed with slope e in place of ALiBi's -slope (c - e), so the sink is raised
  // by the same difference.
  float sink(std::int64_t row, std::int64_t newest) const {
    if (!parts_.sink_n.defined()) return -std::numeric_limits<float>::infinity();
    return parts_.sink_n.const_data_ptr<float>()[row % heads_] + scale_ * alibi(row, newest);
  }

  float alibi(std::int64_t row, std::int64_t token) const {
    if (slopes_.empty()) return 0;
    return static_cast<float>(slopes_[static_cast<std::size_t>(row % heads_)] * static_cast<double>(token)) / scale_;
  }
  float& score_offset(std::int64_t row, std::int64_t token) {
    return score_offsets_[static_cast<std::size_t>(row * capacity_ + token)];
  }

  void rotate(const float* from, float* to, std::int64_t token) const {
    const auto pairs = rotary_2cr_.size(2);
    const auto* cosines = rotary_2cr_.const_data_ptr<float>() + token * pairs;
    rotate_token(RotaryToken<float>{.x = from,
                                    .y = to,
                                    .heads = 1,
                                    .width = key_width_,
                                    .pairs = pairs,
                                    .cosines = cosines,
                                    .sines = cosines + capacity_ * pairs});
  }
  void set_rotated_keys(std::int64_t token) {
    if (rotated_keys_.empty()) return;
    for (std::int64_t row = 0; row < batch_ * stored_keys(); ++row) {
      const auto place = (row * capacity_ + token) * key_width_;
      rotate(keys_ + place, rotated_keys_.data() + place, token);
    }
  }

  // The index in projected_ of the vector of row b n + head, where n is `heads` and `begin` the first column of these
  // vectors.
  std::int64_t place(std::int64_t row, std::int64_t begin, std::int64_t heads) const {
    return row / heads * parts_.projection.outputs() + begin + row % heads * value_width_;
  }
  const float* projected(std::int64_t row, std::int64_t begin, std::int64_t heads) const {
    return projected_.data() + place(row, begin, heads);
  }

  void normalise(const torch::Tensor& gain_nk, std::int64_t begin, std::int64_t heads) {
    if (!gain_nk.defined()) return;
    for (std::int64_t row = 0; row < batch_ * heads; ++row) {
      float* x_k = projected_.data() + place(row, begin, heads);
      const float mean_square = dot_product(x_k, x_k, value_width_) / static_cast<float>(value_width_);
      const float factor = 1 / std::sqrt(mean_square + static_cast<float>(HeadNormImpl::epsilon));
      const float* gain = gain_nk.const_data_ptr<float>() + row % heads * value_width_;
      for (std::int64_t i = 0; i < value_width_; ++i) x_k[i] *= factor * gain[i];
    }
  }
  // The number of rows of keys of a sequence in the state: one for all heads if keys are inputs.
  std::int64_t stored_keys() const { return parts_.from_inputs ? 1 : key_heads_; }
  // Where the keys and the values of row b n + head begin, in the state or beside it.
  std::int64_t key_place(std::int64_t row) const { return row / (heads_ / stored_keys()) * capacity_ * key_width_; }
  float* keys(std::int64_t row) const { return keys_ + key_place(row); }
  const float* values(std::int64_t row) const {
    return values_ + row / (heads_ / key_heads_) * capacity_ * value_width_;
  }
  float* query(std::int64_t row) { return query_.data() + row * key_width_; }

  // Makes room for the newest token's key and value in the state; returns its place.
  std::int64_t append_token() {
    if (parts_.key_slot != parts_.value_slot) state_->append(parts_.key_slot);
    return state_->append(parts_.value_slot);
  }
  // Appends a vector of each head to the state's keys or values `to`: the newest token's projection from column
  // `begin`.
  void keep(std::int64_t begin, float* to, std::int64_t newest) const {
    for (std::int64_t row = 0; row < batch_ * key_heads_; ++row)
      std::copy_n(projected(row, begin, key_heads_), value_width_, to + (row * capacity_ + newest) * value_width_);
  }

  const float* apply_form(std::int64_t row, const float* from) {
    const LinearRows form{.weight = form_njk_.const_data_ptr<float>() + row % heads_ * key_width_ * key_width_,
                          .inputs = key_width_,
                          .outputs = key_width_};
    multiply_rows(form, from, query(row), 1, 0, key_width_);
    return query(row);
  }

  // Sets the score offset of a token in the state to -k F k / 2, plus ALiBi's; returns k F.
  const float* set_offset(std::int64_t row, std::int64_t token) {
    const float* key = keys(row) + token * key_width_;
    const float* image = apply_form(row, key);
    score_offset(row, token) = alibi(row, token) - dot_product(image, key, key_width_) / 2;
    return image;
  }

  const float* find_query(const float* x_bd, std::int64_t row, std::int64_t newest) {
    if (parts_.distance) return set_offset(row, newest);  // its query is its key
    const float* query =
        parts_.from_inputs ? x_bd + row / heads_ * key_width_ : projected(row, parts_.query_begin, heads_);
    return form_njk_.defined() ? apply_form(row, query) : query;
  }

  void attend(const float* x_bd, std::int64_t row, std::int64_t newest) {
    const float* q = find_query(x_bd, row, newest);
    const float* seen_keys = keys(row);
    if (!rotated_keys_.empty()) {
      rotate(q, rotated_query_.data() + row * key_width_, newest);
      q = rotated_query_.data() + row * key_width_;
      seen_keys = rotated_keys_.data() + key_place(row);
    }
    const SeenTokens seen{.count = newest + 1,
                          .keys = seen_keys,
                          .key_width = key_width_,
                          .values = values(row),
                          .value_width = value_width_,
                          .score_offsets = score_offsets_.empty() ? nullptr : score_offsets_.data() + row * capacity_,
                          .sink = sink(row, newest)};
    attend_to_seen(q, seen, scale_, parts_.newest_share, scores_.data() + row * score_step(),
                   mixed_.data() + row * value_width_);
  }

  ScoreDecoderParts parts_;
  std::int64_t batch_, heads_, key_heads_, value_width_, key_width_, capacity_;
  float scale_;
  torch::Tensor form_njk_;            // the form, transposed
  std::vector<float> projected_;      // [b, outputs of the projection]
  std::vector<float> query_;          // [b n, key width]
  std::vector<float> scores_;         // [b n, score_step()]
  std::vector<float> mixed_;          // [b, n k]
  std::vector<float> score_offsets_;  // [b n, capacity], distances and ALiBi only
  std::vector<double> slopes_;        // [n], ALiBi only
  torch::Tensor rotary_2cr_;          // rotary positions only, like the next two
  std::vector<float> rotated_keys_;   // in the layout of the state's keys
  std::vector<float> rotated_query_;  // [b n, key width]
  MixerState* state_ = nullptr;
  // In the state: [b, n, capacity, k] with n heads of keys; if keys are inputs, [b, capacity, d].
  float *keys_ = nullptr, *values_ = nullptr;
};

}  // namespace

LinearDecoder::LinearDecoder(const torch::Tensor& weight_oi, torch::Tensor bias_o, WeightPrecision precision)
    : weight_oi_(precision == WeightPrecision::bf16 ? weight_oi.detach().to(torch::kBFloat16) : weight_oi),
      bias_o_(std::move(bias_o)) {
  rows_ = {.bias = bias_o_.defined() ? bias_o_.data_ptr<float>() : nullptr,
           .inputs = weight_oi_.size(1),
           .outputs = weight_oi_.size(0)};
  if (precision == WeightPrecision::bf16)
    rows_.bf16_weight = elements_of<std::uint16_t>(weight_oi_);
  else
    rows_.weight = weight_oi_.data_ptr<float>();
}

void LinearDecoder::apply(const float* x_bi, float* y_bo, std::int64_t batch) const {
  at::parallel_for(0, rows_.outputs, grain_of(rows_.inputs * batch),
                   [&](auto begin, auto end) { multiply_rows(rows_, x_bi, y_bo, batch, begin, end); });
}

std::unique_ptr<MixerDecoder> make_score_decoder(ScoreDecoderParts parts, std::int64_t batch, std::int64_t capacity) {
  const auto& positions = parts.shape.positions;
  const bool knows = is<RotaryPositionsConfig>(positions) || is<AlibiPositionsConfig>(positions);
  if (act_on_scores(positions) && !knows) return nullptr;
  return std::make_unique<ScoreDecoder>(std::move(parts), batch, capacity);
}

}  // namespace metaformer
