#pragma once
// The interface of every token mixer, with its visibility and its state.

#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/mixer_config.h"
#include "cpu/decoding.h"
#include "ops/linear.h"
#include "ops/named_tensors.h"
#include "ops/pass.h"

namespace metaformer {

// Which tokens see which, and the terms of their positions in scores, with one meaning for all mixers.
//
// Query c sees key e if both have the same segment, that segment is not -1 (padding), the key is less than `window`
// tokens away, and, if causal, not after the query. The keys are in order and the queries are the last of them.
// Segments are integers on the device of the activations and are never read by the host. Undefined segments: one
// segment.
struct Visibility {
  bool causal = false;
  std::int64_t window = 0;                         // 0: none
  torch::Tensor query_segment_bc, key_segment_be;  // both or neither
  torch::Tensor score_bias_nce;                    // added to the scaled scores of mixers with scores; or undefined

  // The place of the only query among the keys, long [1] on the device, which the host never reads: recorded work is
  // repeated with other places. Undefined: the queries are the last of the keys.
  torch::Tensor place_1;

  // For positions transformer_xl: distance_ld has a row for every distance of a query to a key, from the largest,
  // keys - 1, down to 0, or if not causal to 1 - queries. The two biases are set here if all layers share them
  // (attention/score_positions.h).
  torch::Tensor distance_ld, content_bias_nk, distance_bias_nk;

  // The last result of visible_bce(), which the layers of a pass share. Only one thread may use a visibility.
  mutable torch::Tensor last_visible_bce;

  bool has_segments() const { return query_segment_bc.defined(); }
};

// True where query c sees key e: [b, c, e], or [1, c, e] without segments. Undefined if every query sees every key.
// Kept in the visibility for the next call.
torch::Tensor visible_bce(const Visibility& visibility, std::int64_t queries, std::int64_t keys, torch::Device device);

// The visibility for a mixer whose tokens see only those less than `window` tokens away (0: all), and whose state holds
// only the newest `keys` tokens. `distances`: the number of rows of distance_ld to keep.
Visibility within_window(const Visibility& visibility, std::int64_t window, std::int64_t keys, std::int64_t distances);

// The visibility of self-attention, from one segment id per token (undefined: one segment).
Visibility self_visibility(bool causal, const torch::Tensor& segment_bc);

// Whether a segment starts at each token, [b, c] bool; false for padding.
torch::Tensor segment_starts(const torch::Tensor& segments_bc);

// The place of every token within its segment, [b, c]; 0 for padding.
torch::Tensor positions_in_segments(const torch::Tensor& segments_bc);

// y_bcd with zeros for padding.
torch::Tensor without_padding(const torch::Tensor& y_bcd, const Visibility& visibility);

// [c, e]: the place of key e minus that of query c, where the queries are the last of the keys.
torch::Tensor offset_ce(std::int64_t queries, std::int64_t keys, torch::Device device);
// The same for queries whose place the visibility may give.
torch::Tensor offset_ce(const Visibility& visibility, std::int64_t queries, std::int64_t keys, torch::Device device);

// A mixer's memory of earlier tokens while a sequence is generated: numbered buffers [..., tokens, features] that are
// allocated once, or numbered tensors of a fixed size, [b, ...], that every pass replaces.
class MixerState {
 public:
  // Loaded tensors go to `device`; others stay on their own device.
  explicit MixerState(std::int64_t capacity, torch::Device device = torch::kCPU)
      : capacity_(capacity), device_(device) {}

  // Appends `fresh`, [..., tokens, features], to buffer `slot` and returns all of that buffer so far (a view). Throws
  // Error (exit code 1) if more than `capacity` tokens would be held, (exit code 2) if they are of other sizes. With a
  // `window` above 0 the buffer holds only the newest `window` tokens; the result is then `fresh` after up to
  // window - 1 earlier tokens.
  torch::Tensor extend(std::size_t slot, const torch::Tensor& fresh, std::int64_t window = 0);

  // For recorded work (DeviceGraph), before the first token: all tensors keep their addresses. Buffers hold all tokens,
  // also with a window.
  void stay_in_place() { stays_ = true; }

  // Until reset(), extend() writes one token at `place_1` (long [1] on the device, read when the device writes), and
  // returns the first `tokens` places of the buffer: zeros, or tokens that were held before, follow the new one.
  void read_at(const torch::Tensor& place_1, std::int64_t tokens) {
    place_1_ = place_1;
    visible_ = tokens;
  }

  // The whole of buffer `slot`, with the sizes given to `extend` but `capacity` tokens; for decoders, which write to it
  // themselves.
  const torch::Tensor& buffer(std::size_t slot) const { return buffers_.at(slot).storage; }
  std::int64_t length(std::size_t slot) const { return buffers_.at(slot).length; }
  // Adds a token without content and returns its place. Throws Error if the state is full.
  std::int64_t append(std::size_t slot);

  // Whether a buffer holds tokens, and all its tokens, without extending it.
  bool holds(std::size_t slot) const { return slot < buffers_.size() && buffers_[slot].length > 0; }
  // The number of tokens in the next result of extend() before the fresh ones; for buffers without a window.
  std::int64_t tokens_before(std::size_t slot) const {
    if (place_1_.defined()) return visible_ - 1;
    return holds(slot) ? length(slot) : 0;
  }
  torch::Tensor held(std::size_t slot) const { return buffers_.at(slot).storage.narrow(-2, 0, buffers_[slot].length); }

  // The tensor of the last keep(); undefined before the first. Throws Error (exit code 2) if it has other sizes.
  torch::Tensor kept(std::size_t slot, at::IntArrayRef sizes) const;
  // Keeps `value` detached, or a copy of it after stay_in_place().
  void keep(std::size_t slot, const torch::Tensor& value);

  // Sequence i gets the state that sequence rows_b[i] had. The number of sequences may change; if it does not, tensors
  // keep their addresses after stay_in_place().
  void select(const torch::Tensor& rows_b);

  // Forgets the tokens, keeps the buffers.
  void reset() {
    for (auto& buffer : buffers_) buffer.length = 0;
    if (!stays_) kept_.clear();
    for (auto& kept : kept_) kept.is_held = false;
    place_1_ = torch::Tensor();
  }

  // Keeps only the newest tokens of the buffers, which move to the front.
  void keep_newest(std::int64_t tokens);

  // The tokens of every buffer, and the kept tensors, by name, aliasing them.
  NamedTensors tensors() const;

  // Restores the result of tensors() in new buffers. Throws Error (exit code 2) for other names, or more tokens than
  // `capacity`.
  void load(const NamedTensors& saved, const std::string& source);

  std::int64_t bytes() const {
    std::int64_t total = 0;
    const auto add = [&](const torch::Tensor& x) {
      if (x.defined()) total += static_cast<std::int64_t>(x.nbytes());
    };
    for (const auto& buffer : buffers_) add(buffer.storage);
    for (const auto& kept : kept_) add(kept.value);
    return total;
  }

 private:
  struct Buffer {
    torch::Tensor storage;
    std::int64_t length = 0;
  };
  struct Kept {
    torch::Tensor value;
    bool is_held = false;  // false: the value is to be overwritten
  };
  Buffer& slot_for(std::size_t slot, const torch::Tensor& like, std::int64_t room);
  void require_room(std::int64_t tokens) const;

  std::int64_t capacity_;
  torch::Device device_;
  std::vector<Buffer> buffers_;
  std::vector<Kept> kept_;
  bool stays_ = false;
  torch::Tensor place_1_;  // undefined: tokens are appended
  std::int64_t visible_ = 0;
};

std::int64_t bytes_of(const std::vector<MixerState>& states);

// Computes a mixer in generation on the CPU: each step is one token for each of several sequences.
class MixerDecoder {
 public:
  virtual ~MixerDecoder() = default;

  // Continues from the state that Mixer::forward has left: to be called at the start, and after each later change of
  // the state by forward.
  virtual void resume(MixerState& state) = 0;

  // Computes forward for one more token of every sequence, x_bd, and extends the state of resume(). Throws Error if it
  // is full.
  virtual void step(const float* x_bd, float* y_bd) = 0;
};

// The bilinear form of the scores, x_c F x_e per head, as F = left^T right; r is an upper bound of its rank.
struct ScoreForm {
  torch::Tensor left_nrd, right_nrd;
};

// Whether x is the end of the context: the same tensor, or a view of its last tokens, which follow the memory.
inline bool is_end_of(const torch::Tensor& x_bcd, const torch::Tensor& context_bed) {
  if (x_bcd.is_same(context_bed)) return true;
  const auto before = context_bed.size(1) - x_bcd.size(1);
  return before > 0 && x_bcd.is_alias_of(context_bed) && x_bcd.strides() == context_bed.strides() &&
         x_bcd.storage_offset() == context_bed.storage_offset() + before * context_bed.stride(1);
}

// The size of a forward pass.
struct MixerLoad {
  std::int64_t context = 0;  // tokens of a sequence
  double tokens = 0;         // of all sequences
  double pairs = 0;          // of a token and one that it sees, of all sequences
  bool causal = true;
};

struct MixerCost {
  double operations = 0;         // multiplications and additions of a forward pass
  std::int64_t activations = 0;  // numbers per token that are kept for the backward pass
  bool keeps_pairs = false;      // keeps numbers for every pair of tokens and head
};

class Mixer : public Layer {
 public:
  // Mixes the tokens of context_bed into those of x_bcd, giving [b, c, d]. The context is x itself (the same tensor),
  // memory followed by x (is_end_of), or another sequence, if the mixer supports that. With a state, x is the newest
  // tokens, and a context that is not another sequence must be x; earlier tokens come from the state, which is
  // extended. A token that sees nothing gets zeros.
  virtual torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                                const Visibility& visibility, MixerState* state, Pass& pass) = 0;

  // Whether forward reads both sequences only through linear layers, so that they may be in the type of products.
  virtual bool reads_by_products() const { return false; }

  // A faster implementation of forward with a state, for one token at a time of `batch` sequences of up to `capacity`
  // tokens. It uses the current weights, which must be float32 and on the CPU, and keeps the matrices of linear layers
  // in `precision`. nullptr if the mixer has none; then `forward` with a state is used.
  virtual std::unique_ptr<MixerDecoder> decoder(std::int64_t /*batch*/, std::int64_t /*capacity*/,
                                                WeightPrecision /*precision*/ = WeightPrecision::fp32) const {
    return nullptr;
  }

  // nullopt for mixers without scores, or whose scores have no single form. For a distance: the form of the part that
  // depends on both tokens.
  virtual std::optional<ScoreForm> score_form() const { return std::nullopt; }

  // Scales the freshly drawn parameters so that the scores of different tokens start with the standard deviation
  // `score_std` of the options; for a distance, that of the part that varies along the context. Expects the mixer's own
  // parameters (forms) drawn from N(0, 1), and normalised inputs whose projections have the variance
  // `projection_variance`.
  virtual void scale_initial_scores(double /*projection_variance*/) {}

  virtual MixerCost cost(const MixerLoad& load) const = 0;
};

// The mixer that the options describe, not yet initialised, and its cost.
std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape);
MixerCost cost_of(const MixerConfig& config, const MixerShape& shape, const MixerLoad& load);

// The number of a mixer's trained parameters, and the bytes of its float32 state after `tokens` generated tokens of one
// text; nullopt if generation has no state, or the mixer is too large to be created for this measurement.
struct MixerSizes {
  std::int64_t parameters = 0;
  std::optional<std::int64_t> state_bytes;
};
MixerSizes sizes_of(const MixerConfig& config, const MixerShape& shape, std::int64_t tokens);

}  // namespace metaformer
