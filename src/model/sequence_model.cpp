#include "model/sequence_model.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <map>
#include <string>

#include "core/random.h"
#include "model/decoder.h"

namespace metaformer {

std::unique_ptr<Decoder> SequenceModel::decoder(std::int64_t) const { return nullptr; }

ParameterCounts count_parameters(const torch::nn::Module& model) {
  ParameterCounts counts;
  for (const auto& parameter : model.named_parameters()) {
    counts.all += parameter.value().numel();
    if (parameter.key().find(".mixer.") != std::string::npos) counts.mixers += parameter.value().numel();
  }
  return counts;
}

namespace {

constexpr double standard_deviation = 0.02;

// The mixers' own parameters: name -> standard deviation.
std::map<std::string, double> form_spreads(const SequenceModel& model) {
  std::map<std::string, double> spreads;
  // A projection of a normalised vector: the sum of `width` products.
  const double projection_variance =
      static_cast<double>(model.config().width) * standard_deviation * standard_deviation;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    const auto* mixer = dynamic_cast<const Mixer*>(module.value().get());
    if (mixer == nullptr) continue;
    for (const auto& form : mixer->named_parameters(/*recurse=*/false))
      spreads[module.key() + "." + form.key()] = mixer->form_spread(projection_variance);
  }
  return spreads;
}

}  // namespace

void initialise(SequenceModel& model, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const Rng streams(seed, RandomPurpose::initialisation);
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(model.config().layers));
  const auto forms = form_spreads(model);
  for (auto& parameter : model.named_parameters()) {
    const auto& name = parameter.key();
    auto& value = parameter.value();
    double spread = standard_deviation;
    if (const auto form = forms.find(name); form != forms.end()) {
      spread = form->second;
      if (spread == 0) continue;
    } else if (name.ends_with("bias")) {
      value.zero_();
      continue;
    } else if (value.dim() == 1) {
      value.fill_(1);
      continue;
    } else if (name.ends_with("token_embedding.weight") || name.ends_with("ngram_embedding.weight")) {
      spread = model.config().embedding_std;
    } else if (name.ends_with(".mixer.output.weight") || name.ends_with(".feed_forward.down.weight")) {
      spread *= residual_scale;
    }
    auto generator = at::detail::createCPUGenerator(streams.bits(hash_name(name)));
    value.normal_(0, spread, generator);
  }
}

}  // namespace metaformer
