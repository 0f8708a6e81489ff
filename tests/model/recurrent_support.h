#pragma once
// Small recurrent models for tests.

#include "model/recurrent_model.h"
#include "support/torch_catch.h"

namespace metaformer {

constexpr std::int64_t vocabulary = 13, batch = 2, segment = 5;

inline RecurrentConfig config_of(RecurrentCell cell) {
  RecurrentConfig config{.cell = cell};
  config.layers = 2;
  config.width = 6;
  config.context = segment;
  return config;
}

inline RecurrentConfig any_config() { return config_of(GENERATE(RecurrentCell::lstm, RecurrentCell::gru)); }

// Random weights.
inline RecurrentModel model_of(const RecurrentConfig& config, torch::ScalarType type = torch::kDouble) {
  RecurrentModel model(config, vocabulary);
  model.to(type);
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.normal_(0, 0.5);
  return model;
}

inline torch::Tensor random_ids(std::int64_t length) {
  torch::manual_seed(length);
  return torch::randint(vocabulary, {batch, length}, torch::kLong);
}

inline bool close(const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 1e-10, 1e-12); }

// The segments of rows with documents of these lengths.
inline torch::Tensor documents(const std::vector<std::vector<std::int64_t>>& rows) {
  std::vector<torch::Tensor> all;
  for (const auto& lengths : rows) {
    std::vector<torch::Tensor> of_row;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      of_row.push_back(torch::full({lengths[i]}, static_cast<std::int64_t>(i), torch::kLong));
    all.push_back(torch::cat(of_row));
  }
  return torch::stack(all);
}

// "weight_ih" of layer 1 is weight_ih_l1; in double.
inline torch::Tensor weight_of(const RecurrentModel& model, const std::string& name, std::int64_t layer) {
  for (const auto& parameter : model.named_parameters())
    if (parameter.key().ends_with("." + name + "_l" + std::to_string(layer)))
      return parameter.value().to(torch::kDouble);
  FAIL("no parameter " << name);
  return {};
}

}  // namespace metaformer
