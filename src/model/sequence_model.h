#pragma once
// The interface between tasks and networks.

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "attention/mixer.h"
#include "config/model_config.h"
#include "model/batch.h"
#include "model/decoder.h"

namespace metaformer {

// What a model remembers of a sequence while it is generated.
struct ModelState {
  ModelState(std::int64_t layers, std::int64_t capacity)
      : capacity(capacity), mixers(static_cast<std::size_t>(layers), MixerState(capacity)) {}
  std::int64_t length = 0;  // tokens seen
  std::int64_t capacity;
  std::vector<MixerState> mixers;

  // Forgets the sequence, keeps the buffers.
  void clear() {
    length = 0;
    for (auto& mixer : mixers) mixer.clear();
  }
};

class SequenceModel : public torch::nn::Module {
 public:
  // Logits: [b, c, v] of a language model, [b, classes] of a classifier. With a state, ids are the tokens that follow
  // those already seen; the state is advanced.
  virtual torch::Tensor forward(const Batch& batch, ModelState* state = nullptr) = 0;

  virtual const ModelConfig& config() const = 0;

  // For what `forward` returns token by token of `batch` sequences, faster (model/decoder.h). Nothing where there is no
  // such thing for this model or for where its weights are.
  virtual std::unique_ptr<Decoder> decoder(std::int64_t batch) const { return (void)batch, nullptr; }
};

struct ParameterCounts {
  std::int64_t all = 0;
  std::int64_t mixers = 0;
};
ParameterCounts count_parameters(const torch::nn::Module& model);

// GPT-2's initialisation: normal(0, 0.02), output projections of branches divided by sqrt(2 layers), biases 0, norms 1;
// embeddings of tokens and n-grams normal(0, model.embedding_std).
// Scores start as Mixer::scale_initial_scores says. Every parameter has its own random stream, a function of
// (seed, name), so that models which differ in their mixer share everything else.
void initialise(SequenceModel& model, std::uint64_t seed);

}  // namespace metaformer
