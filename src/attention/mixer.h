#pragma once
// The interface of every token mixer, with its visibility and its state.

#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/mixer_config.h"
#include "ops/linear.h"
#include "ops/named_tensors.h"
#include "ops/pass.h"

namespace metaformer {

// Who may see whom, and how much by where they stand, with one meaning for all mixers.
//
// Query c sees key e when both have the same segment, that segment is not -1 (padding), the key stands less than
// `window` tokens away, and, if causal, not after the query: the keys stand in order and the queries are the last of
// them. Segments are integers on the device of the activations and are never read by the host. Undefined
// segments: all one segment.
struct Visibility {
  bool causal = false;
  std::int64_t window = 0;                         // 0: none
  torch::Tensor query_segment_bc, key_segment_be;  // both or neither
  torch::Tensor score_bias_nce;                    // added to the scaled scores, where a mixer has them; or undefined

  // For positions transformer_xl: a row for every distance of a query to a key, from the largest (keys - 1) down to 0,
  // or if not causal to 1 - queries; and their two vectors, where all layers have the same
  // (attention/score_positions.h).
  torch::Tensor distance_ld, content_bias_nk, distance_bias_nk;

  // The last result of visible_bce(), which the layers of a pass share. One thread uses a visibility.
  mutable torch::Tensor last_visible_bce;

  bool has_segments() const { return query_segment_bc.defined(); }
};

// True where query c sees key e: [b, c, e], or [1, c, e] without segments. Undefined when everyone sees everyone. Kept
// in the visibility for the next call.
torch::Tensor visible_bce(const Visibility& visibility, std::int64_t queries, std::int64_t keys, torch::Device device);

// The same for a mixer whose tokens see only those less than `window` tokens away (0: all), and which has forgotten all
// but the newest `keys`. `distances`: rows of distance_ld that are left then.
Visibility within_window(const Visibility& visibility, std::int64_t window, std::int64_t keys, std::int64_t distances);

// The visibility of tokens that look at themselves, from one segment id per token (undefined: one segment).
Visibility self_visibility(bool causal, const torch::Tensor& segment_bc);

// Whether a segment starts at each token, [b, c] bool. Padding starts none.
torch::Tensor segment_starts(const torch::Tensor& segments_bc);

// The place of every token within its segment, [b, c]; 0 of padding.
torch::Tensor positions_in_segments(const torch::Tensor& segments_bc);

// With zeros for padding, [b, c, d].
torch::Tensor without_padding(const torch::Tensor& y_bcd, const Visibility& visibility);

// [c, e]: how far key e stands after query c in row order, the queries being the last of the keys.
torch::Tensor offset_ce(std::int64_t queries, std::int64_t keys, torch::Device device);

// A mixer's memory of earlier tokens while a sequence is generated: numbered buffers [..., tokens, features] that are
// allocated once, or numbered tensors of a fixed size, [b, ...], that every pass replaces.
class MixerState {
 public:
  // Loaded tensors go to `device`; others stay where they come from.
  explicit MixerState(std::int64_t capacity, torch::Device device = torch::kCPU)
      : capacity_(capacity), device_(device) {}

  // Appends `fresh`, [..., tokens, features], to buffer `slot` and returns all of that buffer so far (a view). Throws
  // Error (exit code 1) when more than `capacity` tokens would be held, (exit code 2) when they are of other sizes.
  // With a `window` above 0 the buffer holds no more than that many tokens, the newest, however many there were; it
  // returns `fresh` and the window - 1 tokens before, or as many as there are.
  torch::Tensor extend(std::size_t slot, const torch::Tensor& fresh, std::int64_t window = 0);

  // For decoders, which write to the buffers by themselves. The whole of buffer `slot`: of sizes as given to `extend`,
  // but with `capacity` tokens.
  const torch::Tensor& buffer(std::size_t slot) const { return buffers_.at(slot).storage; }
  std::int64_t length(std::size_t slot) const { return buffers_.at(slot).length; }
  // The place of one more token, which holds nothing yet. Throws Error when the state is full.
  std::int64_t append(std::size_t slot);

  // For buffers that are not extended: whether one holds tokens, and all of them.
  bool holds(std::size_t slot) const { return slot < buffers_.size() && buffers_[slot].length > 0; }
  torch::Tensor held(std::size_t slot) const { return buffers_.at(slot).storage.narrow(-2, 0, buffers_[slot].length); }

  // The tensor that keep() got last, undefined before that. Throws Error (exit code 2) when it has other sizes.
  torch::Tensor kept(std::size_t slot, at::IntArrayRef sizes) const;
  // No gradient flows back into it.
  void keep(std::size_t slot, const torch::Tensor& value);

  // Sequence i becomes what sequence rows_b[i] was; there may be another number of them.
  void select(const torch::Tensor& rows_b) {
    for (auto& buffer : buffers_)
      if (buffer.storage.defined()) buffer.storage = buffer.storage.index_select(0, rows_b);
    for (auto& value : kept_)
      if (value.defined()) value = value.index_select(0, rows_b);
  }

  // Forgets the tokens, keeps the buffers.
  void reset() {
    for (auto& buffer : buffers_) buffer.length = 0;
    kept_.clear();
  }

  // Keeps only the newest tokens of the buffers, which move to the front.
  void keep_newest(std::int64_t tokens);

  // The tokens of every buffer, and what is kept, by name, aliasing them.
  NamedTensors tensors() const;

  // Takes up what tensors() gave, in new buffers. Throws Error (exit code 2) for other names, or more tokens than
  // `capacity`.
  void load(const NamedTensors& saved, const std::string& source);

  std::int64_t bytes() const {
    std::int64_t total = 0;
    const auto add = [&](const torch::Tensor& x) {
      if (x.defined()) total += static_cast<std::int64_t>(x.nbytes());
    };
    for (const auto& buffer : buffers_) add(buffer.storage);
    for (const auto& value : kept_) add(value);
    return total;
  }

 private:
  struct Buffer {
    torch::Tensor storage;
    std::int64_t length = 0;
  };
  Buffer& slot_for(std::size_t slot, const torch::Tensor& like, std::int64_t room);
  void require_room(std::int64_t tokens) const;

  std::int64_t capacity_;
  torch::Device device_;
  std::vector<Buffer> buffers_;
  std::vector<torch::Tensor> kept_;
};

std::int64_t bytes_of(const std::vector<MixerState>& states);

// A mixer while text is generated on the CPU: one token after each of several sequences.
class MixerDecoder {
 public:
  virtual ~MixerDecoder() = default;

  // Takes up what Mixer::forward has left in the state: at the start, and whenever forward has changed it since.
  virtual void resume(MixerState& state) = 0;

  // The result of forward for one more token of every sequence, x_bd; the state that was taken up is extended.
  // Throws Error when it is full.
  virtual void step(const float* x_bd, float* y_bd) = 0;
};

// The bilinear form that scores are made of, x_c F x_e per head, as F = left^T right; r is its rank at most.
struct ScoreForm {
  torch::Tensor left_nrd, right_nrd;
};

// Whether x is the very end of the context: memory followed by x, as one tensor and a view of it.
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
  double pairs = 0;          // of tokens of which one sees the other, of all sequences
  bool causal = true;
};

struct MixerCost {
  double operations = 0;         // multiplications and additions of a forward pass
  std::int64_t activations = 0;  // numbers that a token leaves for the backward pass
  bool keeps_pairs = false;      // holds numbers for every pair of tokens and head
};

class Mixer : public Layer {
 public:
  // Mixes the tokens of context_bed into those of x_bcd, giving [b, c, d]. The context is x itself (the same tensor),
  // memory followed by x (is_end_of), or another sequence, where the mixer can do that. With a state, x are the newest
  // tokens, context must be x, and earlier tokens come from the state, which is extended. A token that sees nothing
  // gets zeros.
  virtual torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                                const Visibility& visibility, MixerState* state, Pass& pass) = 0;

  // The same for one token at a time of `batch` sequences of up to `capacity` tokens, faster: for weights, as they are
  // now, in float32 on the CPU. Nothing where there is no such thing: then `forward` with a state does it.
  virtual std::unique_ptr<MixerDecoder> decoder(std::int64_t /*batch*/, std::int64_t /*capacity*/) const {
    return nullptr;
  }

  // Nothing for mixers without scores, or whose scores are of no single form. Of a distance: the part that depends on
  // both tokens.
  virtual std::optional<ScoreForm> score_form() const { return std::nullopt; }

  // Scales the freshly drawn parameters so that the scores of different tokens start with the standard deviation
  // `score_std` of the options; of a distance, what varies along the context. Expects the mixer's own parameters
  // (forms) drawn from N(0, 1), and normalised inputs whose projections have the variance `projection_variance`.
  virtual void scale_initial_scores(double /*projection_variance*/) {}

  virtual MixerCost cost(const MixerLoad& load) const = 0;
};

// The mixer that the options describe, not yet initialised, and what it would cost.
std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape);
MixerCost cost_of(const MixerConfig& config, const MixerShape& shape, const MixerLoad& load);

// Trained parameters of a mixer, and the bytes of its state in float32 after `tokens` tokens of a text that is
// generated; nothing where text is generated without a state.
struct MixerSizes {
  std::int64_t parameters = 0;
  std::optional<std::int64_t> state_bytes;
};
MixerSizes sizes_of(const MixerConfig& config, const MixerShape& shape, std::int64_t tokens);

}  // namespace metaformer
