#include "model/sequence_model.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"

namespace metaformer {

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

struct NamedMixer {
  std::string name;
  Mixer* mixer;
};

std::vector<NamedMixer> mixers_of(const SequenceModel& model) {
  std::vector<NamedMixer> mixers;
  for (const auto& module : model.named_modules("", /*include_self=*/false))
    if (auto* mixer = dynamic_cast<Mixer*>(module.value().get())) mixers.push_back({module.key(), mixer});
  return mixers;
}

// Names of the mixers' own parameters, which are score forms.
std::set<std::string> form_names(const std::vector<NamedMixer>& mixers) {
  std::set<std::string> names;
  for (const auto& [name, mixer] : mixers)
    for (const auto& form : mixer->named_parameters(/*recurse=*/false)) names.insert(name + "." + form.key());
  return names;
}

}  // namespace

void initialise(SequenceModel& model, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const Rng streams(seed, RandomPurpose::initialisation);
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(model.config().layers));
  const auto mixers = mixers_of(model);
  const auto forms = form_names(mixers);
  for (auto& parameter : model.named_parameters()) {
    const auto& name = parameter.key();
    auto& value = parameter.value();
    double spread = standard_deviation;
    if (forms.contains(name)) {
      spread = 1;
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
  // A projection of a normalised vector is the sum of `width` products.
  const double projection_variance =
      static_cast<double>(model.config().width) * standard_deviation * standard_deviation;
  for (const auto& [name, mixer] : mixers) mixer->scale_initial_scores(projection_variance);
}

}  // namespace metaformer
