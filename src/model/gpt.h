#pragma once
// A causal language model (GPT-2, Radford et al. 2019; nanoGPT).

#include "model/token_model.h"

namespace metaformer {

class Gpt : public TokenModel {
 public:
  Gpt(const TransformerConfig& config, std::int64_t vocabulary);

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
  bool remembers() const override { return config().memory > 0; }
  std::int64_t recordable_layers() const override;
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override;
  std::unique_ptr<ModelState> new_memory() const override;
  std::unique_ptr<Decoder> decoder(std::int64_t batch) const override;
};

}  // namespace metaformer
