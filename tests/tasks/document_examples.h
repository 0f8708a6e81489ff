#pragma once
// Documents as packs of a language model's batches, and the loss of a model over batches.

#include <vector>

#include "model/token_model.h"
#include "support/torch_catch.h"
#include "tasks/batches.h"
#include "tasks/text_streams.h"

namespace metaformer {

constexpr std::int64_t document_context = 12;

// Documents of these lengths, for training and for validation alike. byte(i, place): of place i in its document.
template <class Byte>
Corpus corpus_of(const std::vector<std::size_t>& lengths, const Byte& byte) {
  Corpus corpus{.path = "documents.jsonl", .text = {}, .sha256 = {}};
  for (const auto length : lengths) {
    corpus.document_starts.push_back(corpus.text.size());
    for (std::size_t i = 0; i < length; ++i) corpus.text.push_back(static_cast<char>(byte(i, corpus.text.size())));
  }
  corpus.held_out = corpus.text;
  corpus.held_out_document_starts = corpus.document_starts;
  return corpus;
}

// 116 bytes. One of 1 byte has no next token; one of 40 has 39, in pieces of 12, 12, 12 and 3.
inline const std::vector<std::size_t> document_lengths = {5, 1, 13, 40, 3, 2, 8, 9, 4, 4, 12, 6, 2, 7};

// A small model in float64 with random weights.
template <class Model>
Model document_model(const MixerConfig& mixer, const PositionsConfig& positions, std::int64_t tokens) {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = document_context;
  config.mixer = mixer;
  config.positions = positions;
  Model model(config, tokens);
  model.to(torch::kDouble);
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.normal_(0, 0.4);
  return model;
}

struct Answer {
  double loss = 0, weight = 0;
  torch::Tensor gradient;
};

// Of the mean loss over all batches.
inline Answer mean_loss(SequenceModel& model, const std::vector<Batch>& batches) {
  model.zero_grad();
  torch::Tensor sum = torch::zeros({}, torch::kDouble), weight = torch::zeros({}, torch::kDouble);
  for (const auto& batch : batches) {
    Pass pass;
    sum = sum + TokenObjective().loss(model.forward(batch, nullptr, pass), batch);
    weight = weight + batch.weight;
  }
  const auto loss = sum / weight;
  loss.backward();
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : model.parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad().flatten());
  return {loss.item<double>(), weight.item<double>(), torch::cat(gradients)};
}

}  // namespace metaformer
