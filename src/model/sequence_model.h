#pragma once
// The interface between tasks and networks.

#include <torch/torch.h>

#include <memory>

#include "config/model_config.h"
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

  virtual const TransformerConfig& config() const = 0;

  // An empty state for `batch` sequences of up to `capacity` tokens, where the weights are now. Throws Error (exit code
  // 1) for a model that needs its whole input at once.
  virtual std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const;

  // What training carries from one segment of a text to the next. Nothing for a model without model.memory.
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
