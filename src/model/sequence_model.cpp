#include "model/sequence_model.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "core/random.h"

namespace metaformer {

ParameterCounts count_parameters(const torch::nn::Module& model) {
  ParameterCounts counts;
  for (const auto& parameter : model.named_parameters()) {
    counts.all += parameter.value().numel();
    if (parameter.key().find(".mixer.") != std::string::npos) counts.mixers += parameter.value().numel();
  }
  return counts;
}

void initialise(torch::nn::Module& model, std::int64_t layers, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  constexpr double standard_deviation = 0.02;
  const Rng streams(seed, RandomPurpose::initialisation);
  for (auto& parameter : model.named_parameters()) {
    const auto& name = parameter.key();
    auto& value = parameter.value();
    const bool score_form = name.ends_with("metric") || name.ends_with("packed_factor") || name.ends_with(".form");
    if (score_form) continue;
    if (name.ends_with("bias")) {
      value.zero_();
    } else if (value.dim() == 1) {
      value.fill_(1);
    } else {
      const bool ends_branch = name.ends_with(".mixer.output.weight") || name.ends_with(".feed_forward.down.weight");
      const double scale = ends_branch ? 1 / std::sqrt(2.0 * static_cast<double>(layers)) : 1;
      auto generator = at::detail::createCPUGenerator(streams.bits(hash_name(name)));
      value.normal_(0, standard_deviation * scale, generator);
    }
  }
}

}  // namespace metaformer
