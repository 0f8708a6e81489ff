#pragma once
// The interface of every token mixer.

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

#include "config/mixer_options.h"
#include "ops/visibility.h"

namespace metaformer {

// A mixer's memory while a sequence is generated: what it needs of earlier tokens, in buffers allocated once.
class MixerState {
 public:
  explicit MixerState(std::int64_t capacity) : capacity_(capacity) {}

  // Appends `fresh` along `dim` to buffer `slot` and returns all of that buffer so far (a view). Throws Error when more
  // than `capacity` tokens would be held.
  torch::Tensor extend(std::size_t slot, const torch::Tensor& fresh, std::int64_t dim);

  // For decoders, which write to the buffers by themselves. Buffer `slot` with all its room: of sizes as given to
  // `extend`, but `capacity` along `dim`.
  const torch::Tensor& buffer(std::size_t slot) const { return buffers_.at(slot).storage; }
  std::int64_t length(std::size_t slot) const { return buffers_.at(slot).length; }
  // The place of one more token along `dim`, which holds nothing yet. Throws Error when there is no room.
  std::int64_t append(std::size_t slot);

  // Forgets the tokens, keeps the buffers.
  void clear();

  // Bytes of the buffers.
  std::int64_t bytes() const;

 private:
  struct Buffer {
    torch::Tensor storage;
    std::int64_t length = 0;
  };
  void require_room(std::int64_t tokens) const;

  std::int64_t capacity_;
  std::vector<Buffer> buffers_;
};

struct MixerTraits {
  bool can_cross = false;  // accepts a context other than x
};

// What a mixer needs to know of the model around it.
struct MixerShape {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  double dropout = 0;  // on scores, while training
  bool bias = false;   // in projections
  std::int64_t head_width() const { return width / heads; }
};

// The bilinear form that scores are made of, x_c F x_e per head, as F = left^T right; r is its rank at most.
struct ScoreForm {
  torch::Tensor left_nrd, right_nrd;
};

class MixerDecoder;

class Mixer : public torch::nn::Module {
 public:
  // Mixes the tokens of context_bed into those of x_bcd, giving [b, c, d]. The context is x itself (the same tensor),
  // memory followed by x, or another sequence. With a state, x are the newest tokens, context must be x, and earlier
  // tokens come from the state, which is extended. A token that sees nothing gets zeros.
  virtual torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                                const Visibility& visibility, MixerState* state) = 0;

  virtual MixerTraits traits() const = 0;

  // The same for one token at a time of `batch` sequences with room for `capacity` tokens: for weights, as they are
  // now, in float32 on the CPU.
  virtual std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity) const = 0;

  // Nothing for mixers without scores, or whose scores are of no single form. Of a distance: the part that depends on
  // both tokens.
  virtual std::optional<ScoreForm> score_form() const { return std::nullopt; }

  // Scales the freshly drawn parameters so that the scores of different tokens start with the standard deviation
  // `score_std` of the options; of a distance, what varies along the context. Expects the mixer's own parameters
  // (forms) drawn from N(0, 1), and normalised inputs whose projections have the variance `projection_variance`.
  virtual void scale_initial_scores(double projection_variance) { (void)projection_variance; }
};

}  // namespace metaformer
