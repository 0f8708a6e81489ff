#include "attention/make_mixer.h"

#include <array>

#include "attention/mixers.h"

namespace metaformer {

std::shared_ptr<Mixer> make_mixer(const MixerOptions& options, const MixerShape& shape) {
  return std::visit([&](const auto& chosen) { return make(chosen, shape); }, options);
}

namespace {

constexpr std::array backends = {Backend::reference, Backend::composed};

void add_metrics(std::vector<MixerOptions>& all) {
  for (const auto constraint :
       {MetricConstraint::symmetric, MetricConstraint::psd, MetricConstraint::diagonal, MetricConstraint::identity}) {
    for (const auto backend : backends) {
      all.push_back(MetricOptions{.constraint = constraint, .score = MetricScore::bilinear, .backend = backend});
      if (constraint != MetricConstraint::symmetric)
        all.push_back(MetricOptions{.constraint = constraint, .score = MetricScore::distance, .backend = backend});
    }
  }
  all.push_back(MetricOptions{
      .constraint = MetricConstraint::symmetric, .score = MetricScore::as_published, .backend = Backend::automatic});
}

}  // namespace

std::vector<MixerOptions> every_mixer() {
  std::vector<MixerOptions> all;
  for (const auto backend : backends) {
    all.push_back(ScaledDotProductOptions{.backend = backend});
    for (const auto form : {QuadraticForm::projected, QuadraticForm::full})
      all.push_back(QuadraticOptions{.form = form, .backend = backend});
    for (const std::int64_t window : {1, 2, 3, 40, 0})
      all.push_back(AveragePoolingOptions{.window = {window}, .backend = backend});
  }
  add_metrics(all);
  all.push_back(IdentityOptions{});
  all.push_back(NoneOptions{});
  return all;
}

}  // namespace metaformer
