#pragma once
// The interface between tasks and networks.

#include <torch/nn/module.h>

#include <memory>

#include "model/batch.h"
#include "model/decoder.h"
#include "model/model_state.h"
#include "ops/pass.h"

namespace metaformer {

class SequenceModel : public torch::nn::Module {
 public:
  // Logits: [b, c, v] of a language model, [b, classes] of a classifier. With a state (of new_state or new_memory), ids
  // are the tokens that follow those already seen, unless the batch begins; the state is advanced.
  virtual torch::Tensor forward(const Batch& batch, ModelState* state, Pass& pass) = 0;

  // The two parts of it, of a language model: hidden vectors [b, c, d], and logits of any [..., d]. Throw Error (exit
  // code 1) for another model.
  virtual torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass);
  virtual torch::Tensor logits_of(const torch::Tensor& hidden) const;
  // The weights that logits_of reads.
  virtual std::vector<torch::Tensor> head_weights() const { return {}; }

  // Without dropout.
  torch::Tensor evaluate(const Batch& batch, ModelState* state = nullptr);

  // Tokens that it sees at once; where it reads a text in order, those of a segment.
  virtual std::int64_t context() const = 0;

  virtual std::int64_t width() const = 0;  // of hidden vectors

  // Whether a batch goes on where the one before it ended, so that training gives a memory and evaluation a state.
  virtual bool remembers() const { return false; }

  // Whether a state takes any number of tokens, so that no text that is generated is ever cut.
  virtual bool has_endless_state() const { return remembers(); }

  // Layers of a model that gives a token the same logits whatever is behind it, and can encode a window again in work
  // of a fixed shape (infer/device_generator.h); 0 for any other.
  virtual std::int64_t recordable_layers() const { return 0; }

  // An empty state for `batch` sequences of up to `capacity` tokens, where the weights are now. Throws Error (exit code
  // 1) for a model that needs its whole input at once.
  virtual std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const;

  // What training carries from one segment of a text to the next. Nothing for a model that does not remember.
  virtual std::unique_ptr<ModelState> new_memory() const { return nullptr; }

  // For what `forward` returns token by token of `batch` sequences, faster (model/decoder.h). Nothing where there is no
  // such thing for this model or for where its weights are.
  virtual std::unique_ptr<Decoder> decoder(std::int64_t batch) const { return (void)batch, nullptr; }
};

struct ParameterCounts {
  std::int64_t all = 0;
  std::int64_t mixers = 0;
};
ParameterCounts count_parameters(const torch::nn::Module& model);

}  // namespace metaformer
