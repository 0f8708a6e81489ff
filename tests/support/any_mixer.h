#pragma once
// Tests that hold for every mixer.

#include "config/experiment_config.h"
#include "support/torch_catch.h"

namespace metaformer {

// Sets an option to its value number `choice`; returns how many it is tried with, 0 for numbers.
inline std::size_t set_option(const Field::Value& value, std::size_t choice) {
  if (const auto* truth = std::get_if<bool*>(&value)) {
    **truth = choice == 1;
    return 2;
  }
  if (const auto* names = std::get_if<Enumeration>(&value)) {
    names->set(choice);
    return names->names.size();
  }
  const auto* form = std::get_if<TextForm>(&value);
  if (form == nullptr) return 0;
  std::vector<std::string> texts;
  for (const auto* text : {"1", "2", "3", "40", "all"})
    if (form->read(text)) texts.emplace_back(text);
  form->read(texts.at(choice));
  return texts.size();
}

// Sets the options that are tried with several values, option i to its value number `chosen[i]`, by default its first;
// returns how many values each has.
inline std::vector<std::size_t> set_options(MixerConfig& mixer, const std::vector<std::size_t>& chosen) {
  ExperimentConfig config;
  transformer(config).mixer = mixer;
  std::vector<std::size_t> counts;
  for (const auto& [path, field] : rows_of(config)) {
    if (!path.starts_with("model.mixer.")) continue;
    const auto count = set_option(field.value, counts.size() < chosen.size() ? chosen[counts.size()] : 0);
    if (count > 0) counts.push_back(count);
  }
  mixer = transformer(config).mixer;
  return counts;
}

// The next combination, or false after the last.
inline bool advance(std::vector<std::size_t>& chosen, const std::vector<std::size_t>& counts) {
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (++chosen[i] < counts[i]) return true;
    chosen[i] = 0;
  }
  return false;
}

// Options that only multiply forms and scores go with the other options in the same way: they are tried with shared
// values and one backend.
inline bool is_tried(const MixerConfig& mixer) {
  const auto* dot = std::get_if<ScaledDotProductOptions>(&mixer);
  const auto* quadratic = std::get_if<QuadraticOptions>(&mixer);
  const auto* metric = std::get_if<MetricOptions>(&mixer);
  const bool multiplies = (dot && dot->learned_temperature) ||
                          (quadratic && (quadratic->learned_temperature || quadratic->fixed_norm)) ||
                          (metric && (metric->learned_temperature || metric->fixed_norm));
  const bool shares = (quadratic && quadratic->values == MixerValues::shared) ||
                      (metric && metric->values == MixerValues::shared) || dot;
  return !multiplies || (shares && backend_of(mixer) == backends_of(mixer).front());
}

// Every kind, with every combination of its options that is not refused, for the backends that every machine has.
inline std::vector<MixerConfig> every_mixer() {
  const MixerShape shape{.width = 12, .heads = 3};
  std::vector<MixerConfig> all;
  for (const auto& kind : kinds_of<MixerConfig>()) {
    auto mixer = *make_kind<MixerConfig>(kind);
    const auto counts = set_options(mixer, {});
    std::vector<std::size_t> chosen(counts.size());
    do {
      set_options(mixer, chosen);
      const auto backend = backend_of(mixer);
      const bool runs_here = backend == Backend::composed || backend == Backend::reference;
      if (runs_here && !problem_of(mixer, shape) && is_tried(mixer)) all.push_back(mixer);
    } while (advance(chosen, counts));
  }
  return all;
}

// One of every_mixer(): the test case runs once with each.
inline MixerConfig any_mixer() {
  static const auto all = every_mixer();
  return all[GENERATE_COPY(range(std::size_t{0}, all.size()))];
}

// One of those that positions reach in different ways.
inline MixerConfig any_mixer_with_scores() {
  return GENERATE(
      MixerConfig(ScaledDotProductOptions{}), MixerConfig(ScaledDotProductOptions{.backend = Backend::reference}),
      MixerConfig(QuadraticOptions{}), MixerConfig(QuadraticOptions{.values = MixerValues::own}),
      MixerConfig(QuadraticOptions{.form = QuadraticForm::full}), MixerConfig(MetricOptions{}),
      MixerConfig(MetricOptions{.backend = Backend::reference}), MixerConfig(MetricOptions{.values = MixerValues::own}),
      MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}),
      MixerConfig(ScaledDotProductOptions{.qk_norm = true, .learned_temperature = true}),
      MixerConfig(QuadraticOptions{.qk_norm = true, .learned_temperature = true, .fixed_norm = true}),
      MixerConfig(MetricOptions{.constraint = MetricConstraint::psd,
                                .score = MetricScore::distance,
                                .qk_norm = true,
                                .learned_temperature = true,
                                .fixed_norm = true}),
      MixerConfig(MetricOptions{
          .constraint = MetricConstraint::identity, .score = MetricScore::distance, .backend = Backend::reference}));
}

// One of those by which a token sees the same whatever follows it.
inline MixerConfig any_incremental_mixer() {
  static const auto all = [] {
    auto mixers = every_mixer();
    std::erase_if(mixers, [](const MixerConfig& mixer) { return chooses_by_whole_sequence(mixer); });
    return mixers;
  }();
  return all[GENERATE_COPY(range(std::size_t{0}, all.size()))];
}

}  // namespace metaformer
