#pragma once
// Initial weights.

#include "model/sequence_model.h"

namespace metaformer {

// Every parameter below `module` as its ParameterSpec says, then the scores of mixers as Mixer::scale_initial_scores
// says, for projections of that variance. Every parameter has its own random stream, a function of (seed, name), so
// that models which differ in their mixer share everything else.
void initialise(torch::nn::Module& module, std::uint64_t seed, double projection_variance);

// GPT-2's initialisation (the specs of the layers): normal(0, 0.02), output projections of branches divided by
// sqrt(2 layers), biases 0, norms 1; embeddings of tokens and n-grams normal(0, model.embedding.std); layers of other
// models than transformers as PyTorch starts them, uniform(-1 / sqrt(inputs), 1 / sqrt(inputs)).
void initialise(SequenceModel& model, std::uint64_t seed);

}  // namespace metaformer
