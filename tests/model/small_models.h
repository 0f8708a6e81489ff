#pragma once
// Small models with random weights, and comparisons for tests of models.

#include "config/mixer_config.h"
#include "config/model_config.h"
#include "model/parameters.h"
#include "model/sequence_model.h"
#include "support/failure.h"
#include "support/torch_catch.h"

namespace metaformer {

constexpr std::int64_t vocabulary = 13;

inline torch::Tensor random_ids(std::int64_t rows, std::int64_t length, std::int64_t tokens = vocabulary) {
  return torch::randint(tokens, {rows, length}, torch::kLong);
}

// Two layers, two heads.
inline TransformerConfig small_transformer(const MixerConfig& mixer, std::int64_t width = 8,
                                           std::int64_t context = 12) {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = width;
  config.context = context;
  config.mixer = mixer;
  return config;
}
// Sets the initial weights of a seed.
template <class Model>
Model started(Model model, std::uint64_t seed = 5) {
  initialise(model, seed);
  return model;
}

// Draws every parameter from N(0, std^2), in double.
inline void randomise(torch::nn::Module& model, double std = 0.5) {
  model.to(torch::kDouble);
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.normal_(0, std);
}
template <class Model>
Model randomised(Model model, double std = 0.5) {
  randomise(model, std);
  return model;
}

// Observes the stream. Under a probe a model computes part by part and with plain autograd.
struct StreamWatcher : Probe {
  bool wants_scores() const override { return false; }
  void stream(StreamPoint, const torch::Tensor& x_bcd) override { seen.push_back(x_bcd.detach()); }
  std::vector<torch::Tensor> seen;
};

inline bool close(const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 1e-10, 1e-12); }

inline torch::Tensor row(std::vector<std::int64_t> values) { return torch::tensor(values).unsqueeze(0); }

// The segments of rows with documents of these lengths.
inline torch::Tensor documents(const std::vector<std::vector<std::int64_t>>& rows) {
  std::vector<torch::Tensor> all;
  for (const auto& lengths : rows)
    all.push_back(torch::repeat_interleave(torch::arange(std::ssize(lengths)), torch::tensor(lengths)));
  return torch::stack(all);
}

// The logits of a text that is read in parts of these lengths, each with the state after the earlier ones.
inline torch::Tensor read(SequenceModel& model, const Batch& text, ModelState& state,
                          const std::vector<std::int64_t>& lengths) {
  std::vector<torch::Tensor> parts;
  std::int64_t done = 0;
  for (const auto length : lengths) {
    Batch part{.ids_bc = text.ids_bc.narrow(1, done, length)};
    if (text.segments_bc.defined()) part.segments_bc = text.segments_bc.narrow(1, done, length);
    parts.push_back(model.evaluate(part, &state));
    done += length;
  }
  return torch::cat(parts, 1);
}

// The decoder's logits after the next token of every sequence.
inline torch::Tensor next_logits(Decoder& decoder, const torch::Tensor& ids_b) {
  const auto tokens_b = ids_b.to(torch::kInt).contiguous();
  const auto* first = tokens_b.const_data_ptr<std::int32_t>();
  const auto logits = decoder.step({first, static_cast<std::size_t>(tokens_b.numel())});
  return torch::tensor(at::ArrayRef<float>(logits.data(), logits.size())).view({tokens_b.numel(), -1});
}

// A copy of the state's tensors, as in a file.
inline NamedTensors copy_of(const ModelState& state) {
  NamedTensors copy;
  for (const auto& [name, tensor] : state.tensors()) copy.emplace_back(name, tensor.clone());
  return copy;
}

// The reason for which the state refuses to load `saved`; checks that the state does not change.
inline std::string complaint(ModelState& target, const NamedTensors& saved) {
  const auto length = target.length();
  const auto [code, message] = failure([&] { target.load(saved, "a file"); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, Catch::StartsWith("a file: "));
  CHECK(target.length() == length);
  return message;
}

// Compares gradients of the loss with finite differences, in the first, middle and last entry of every parameter.
template <class Loss>
void check_gradients(torch::nn::Module& model, const Loss& loss) {
  constexpr double step = 1e-5;
  model.zero_grad();
  loss().backward();
  for (auto& parameter : model.named_parameters()) {
    INFO(parameter.key());
    const auto& value = parameter.value();
    const torch::NoGradGuard no_grad;
    for (const auto at : {std::int64_t{0}, value.numel() / 2, value.numel() - 1}) {
      auto entry = value.view(-1).select(0, at);
      const double original = entry.template item<double>();
      const auto loss_at = [&](double moved) {
        entry.fill_(moved);
        return loss().template item<double>();
      };
      const double expected = (loss_at(original + step) - loss_at(original - step)) / (2 * step);
      entry.fill_(original);
      const double found = value.grad().defined() ? value.grad().view(-1)[at].template item<double>() : 0;
      CHECK(std::abs(found - expected) <= 1e-8 + 1e-6 * std::abs(expected));
    }
  }
}

}  // namespace metaformer
