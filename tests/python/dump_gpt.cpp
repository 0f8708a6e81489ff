// Writes a GPT with random weights, a batch, and what the model makes of it: for comparison with independent code.
//
//   dump_gpt FOLDER [KEY=VALUE ...]     overrides of the default config
//
// FOLDER gets config.json, model.safetensors and expected.safetensors (ids, targets, logits, loss, grad.NAME).

#include <iostream>

#include "core/config_loader.h"
#include "core/config_writer.h"
#include "core/files.h"
#include "model/gpt.h"
#include "train/named_tensors.h"

int main(int argc, char** argv) {
  using namespace metaformer;
  if (argc < 2) {
    std::cerr << "usage: dump_gpt FOLDER [KEY=VALUE ...]\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const auto config = default_experiment({argv + 2, argv + argc}).config;
  constexpr std::int64_t vocabulary = 23;
  torch::manual_seed(11);
  Gpt model(config.model, vocabulary);
  {
    // Near what training starts from (norms and score forms near the ones and identities they are made with), but
    // exactly nowhere, so that every parameter matters. Biases as large as one would make gradients of the forms
    // differences of large numbers, and float32's rounding what is measured.
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model.named_parameters()) {
      auto& value = parameter.value();
      if (value.dim() == 2 && parameter.key().ends_with(".weight")) value.normal_(0, 0.02);
      if (parameter.key().ends_with(".bias")) value.zero_();
      value.add_(0.1 * torch::randn_like(value));
    }
  }
  const auto ids = torch::randint(vocabulary, {3, config.model.context}, torch::kLong);
  const auto targets = torch::randint(vocabulary, {3, config.model.context}, torch::kLong);
  const auto logits = model.forward(Batch{.ids_bc = ids});
  const auto loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
  loss.backward();
  NamedTensors expected = {{"ids", ids}, {"targets", targets}, {"logits", logits}, {"loss", loss}};
  for (const auto& parameter : model.named_parameters())
    expected.emplace_back("grad." + parameter.key(), parameter.value().grad().defined()
                                                         ? parameter.value().grad()
                                                         : torch::zeros_like(parameter.value()));
  write_file_synced(folder / "config.json", config_to_json(config).dump(2));
  write_file_synced(folder / "model.safetensors", to_safetensors(named_parameters(model)));
  write_file_synced(folder / "expected.safetensors", to_safetensors(expected));
}
