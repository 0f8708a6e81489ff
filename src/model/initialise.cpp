#include "model/initialise.h"

#include <ATen/CPUGeneratorImpl.h>

#include "attention/mixer.h"
#include "base/random.h"

namespace metaformer {

namespace {

void draw(torch::Tensor value, const Init& init, std::uint64_t seed) {
  switch (init.kind) {
    case Init::Kind::zeros:
      value.zero_();
      return;
    case Init::Kind::ones:
      value.fill_(1);
      return;
    case Init::Kind::normal:
      value.normal_(0, init.std, at::detail::createCPUGenerator(seed));
      return;
    case Init::Kind::uniform:
      value.uniform_(-init.bound, init.bound, at::detail::createCPUGenerator(seed));
  }
}

}  // namespace

void initialise(torch::nn::Module& module, std::uint64_t seed, double projection_variance) {
  const torch::NoGradGuard no_grad;
  const Rng streams(seed, RandomPurpose::initialisation);
  for (const auto& [name, value, spec] : specified_parameters(module))
    draw(value, spec.init, streams.bits(hash_name(name)));
  if (auto* mixer = dynamic_cast<Mixer*>(&module)) mixer->scale_initial_scores(projection_variance);
  for (const auto& child : module.modules(/*include_self=*/false))
    if (auto* mixer = dynamic_cast<Mixer*>(child.get())) mixer->scale_initial_scores(projection_variance);
}

void initialise(SequenceModel& model, std::uint64_t seed) {
  // A projection of a normalised vector is the sum of `width` products.
  initialise(model, seed, static_cast<double>(model.width()) * usual_std * usual_std);
}

}  // namespace metaformer
