#pragma once
// Text from a small model, also with graphs on the CPU.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "infer/beam_search.h"
#include "infer/sampling.h"
#include "model/token_model.h"
#include "support/graph_by_hand.h"
#include "support/torch_catch.h"

namespace metaformer {

// Makes graphs by hand; the one with number `failing`, from 1, fails to record.
inline MakeGraph graphs_by_hand(GraphCounts& counts, int failing = 0) {
  return [&counts, failing](torch::Device, std::string&) {
    return std::make_unique<GraphByHand>(counts, counts.captures + 1 == failing);
  };
}

constexpr std::int64_t small_vocabulary = 11;

inline TransformerConfig small_config(std::int64_t context) {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = context;
  return config;
}

template <class Model>
std::shared_ptr<Model> with_random_weights(std::shared_ptr<Model> model, double standard_deviation) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_(0, standard_deviation);
  model->eval();
  return model;
}

inline std::shared_ptr<Gpt> random_gpt(const TransformerConfig& config) {
  return with_random_weights(std::make_shared<Gpt>(config, small_vocabulary), 0.3);
}

using Tokens = std::vector<std::int32_t>;

inline Tokens prompt_of(std::int64_t length) {
  Tokens prompt;
  for (std::int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<std::int32_t>(i * i % small_vocabulary));
  return prompt;
}

// The tokens of all samples, step by step.
template <class Generator>
Tokens generate(Generator& generator, int steps) {
  Tokens all;
  for (int i = 0; i < steps; ++i) {
    const auto& tokens_b = generator.next();
    all.insert(all.end(), tokens_b.begin(), tokens_b.end());
  }
  return all;
}

inline Tokens by_host(Gpt& model, const Tokens& prompt, const SamplingOptions& options, std::int64_t samples,
                      int steps) {
  TextGenerator generator(model, prompt, options, torch::kCPU, samples);
  return generate(generator, steps);
}

inline Tokens by_device(Gpt& model, const Tokens& prompt, const SamplingOptions& options, std::int64_t samples,
                        int steps, const DeviceGenerationPlan& plan) {
  TextGenerator generator(model, prompt, options, torch::kCPU, samples, plan);
  return generate(generator, steps);
}

// Whether two beam searches have found the same hypotheses with the same scores, up to rounding.
inline bool are_near(const std::vector<std::vector<Hypothesis>>& a, const std::vector<std::vector<Hypothesis>>& b) {
  const auto near = [](const Hypothesis& x, const Hypothesis& y) {
    return x.ids == y.ids && x.is_cut == y.is_cut && std::abs(x.log_probability - y.log_probability) < 1e-5 &&
           std::abs(x.score - y.score) < 1e-5;
  };
  return std::ranges::equal(a, b,
                            [&](const auto& of_a, const auto& of_b) { return std::ranges::equal(of_a, of_b, near); });
}

}  // namespace metaformer
