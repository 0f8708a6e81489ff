#pragma once
// Every mixer with combinations of its options, for tests.

#include "attention/mixer.h"
#include "config/experiment_config.h"
#include "support/pairs.h"
#include "support/torch_catch.h"

namespace metaformer {

// The values with which an integer option is tested; empty: it keeps its default.
inline std::vector<std::int64_t> numbers_of(const std::string& name) {
  if (name == "window") return {0, 3};
  if (name == "key_value_heads") return {0, 1};
  if (name == "convolution") return {0, 4};
  if (name == "order") return {2, 3};
  if (name == "expand") return {1, 2};
  if (name == "rank") return {16, 3};
  return {};
}

// Sets an option to its tested value number `choice`; returns the number of tested values, 0 for most integers.
inline std::size_t set_option(const std::string& name, const Field::Value& value, std::size_t choice) {
  if (auto* const* number = std::get_if<std::int64_t*>(&value)) {
    const auto numbers = numbers_of(name);
    if (!numbers.empty()) **number = numbers.at(choice);
    return numbers.size();
  }
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

// Sets every option with several tested values, option i to value number `chosen[i]`, by default the first; returns the
// number of values of each.
inline std::vector<std::size_t> set_options(MixerConfig& mixer, const std::vector<std::size_t>& chosen) {
  ExperimentConfig config;
  transformer(config).mixer = mixer;
  std::vector<std::size_t> counts;
  for (const auto& [path, field] : rows_of(config)) {
    if (!path.starts_with("model.mixer.")) continue;
    const auto count = set_option(field.name, field.value, counts.size() < chosen.size() ? chosen[counts.size()] : 0);
    if (count > 0) counts.push_back(count);
  }
  mixer = transformer(config).mixer;
  return counts;
}

// Mixers, and the choice of option values of each.
struct Combinations {
  std::vector<MixerConfig> mixers;
  std::vector<Choice> choices;
};

// Adds a head if the mixer needs pairs of heads: three heads become four.
inline MixerShape with_pairs(MixerShape shape, const MixerConfig& mixer) {
  if (is<DifferentialOptions>(mixer)) shape.heads += shape.heads % 2;
  return shape;
}

// All valid combinations of a kind, with the backends that every machine has.
inline Combinations combinations_of(const std::string& kind) {
  Combinations all;
  auto mixer = *make_kind<MixerConfig>(kind);
  const auto counts = set_options(mixer, {});
  Choice chosen(counts.size());
  do {
    set_options(mixer, chosen);
    const auto backend = backend_of(mixer);
    const bool runs_here = backend == Backend::composed || backend == Backend::reference;
    if (!runs_here || problem_of(mixer, with_pairs({.width = 12, .heads = 3, .context = 8}, mixer))) continue;
    all.mixers.push_back(mixer);
    all.choices.push_back(chosen);
  } while (advance(chosen, counts));
  return all;
}

// Every kind, with every combination of its options.
inline std::vector<MixerConfig> every_combination() {
  std::vector<MixerConfig> all;
  for (const auto& kind : kinds_of<MixerConfig>()) {
    const auto mixers = combinations_of(kind).mixers;
    all.insert(all.end(), mixers.begin(), mixers.end());
  }
  return all;
}

// Every kind, with every pair of values of two options.
inline std::vector<MixerConfig> every_mixer() {
  std::vector<MixerConfig> all;
  for (const auto& kind : kinds_of<MixerConfig>()) {
    const auto combinations = combinations_of(kind);
    for (const auto i : pairwise(combinations.choices)) all.push_back(combinations.mixers[i]);
  }
  return all;
}

// One of `all`: the test case runs once with each.
inline MixerConfig one_of(const std::vector<MixerConfig>& all) {
  return all[GENERATE_COPY(range(std::size_t{0}, all.size()))];
}

// Formulas of mixers are tested with every combination, everything else with every_mixer().
inline MixerConfig any_combination() {
  static const auto all = every_combination();
  return one_of(all);
}

inline MixerConfig any_mixer_at_all() {
  static const auto all = every_mixer();
  return one_of(all);
}

inline std::vector<MixerConfig> every_mixer_that(bool (*holds)(const MixerConfig&)) {
  auto mixers = every_mixer();
  std::erase_if(mixers, [&](const MixerConfig& mixer) { return !holds(mixer); });
  return mixers;
}

// One of the mixers that can be causal.
inline MixerConfig any_mixer() {
  static const auto all = every_mixer_that(can_be_causal);
  return one_of(all);
}

// One of the mixers that use positions in different ways.
inline MixerConfig any_mixer_with_scores() {
  return GENERATE(
      MixerConfig(ScaledDotProductOptions{}), MixerConfig(ScaledDotProductOptions{.backend = Backend::reference}),
      MixerConfig(QuadraticOptions{}), MixerConfig(QuadraticOptions{.values = MixerValues::own}),
      MixerConfig(QuadraticOptions{.form = QuadraticForm::full}), MixerConfig(MetricOptions{}),
      MixerConfig(MetricOptions{.backend = Backend::reference}), MixerConfig(MetricOptions{.values = MixerValues::own}),
      MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}),
      MixerConfig(ScaledDotProductOptions{.qk_norm = true, .learned_temperature = true}),
      MixerConfig(ScaledDotProductOptions{.window = 4, .key_value_heads = 1, .sinks = true}),
      MixerConfig(ScaledDotProductOptions{.window = 4, .weights = AttentionWeights::sigmoid}),
      MixerConfig(DifferentialOptions{}),
      MixerConfig(QuadraticOptions{.qk_norm = true, .learned_temperature = true, .fixed_norm = true}),
      MixerConfig(MetricOptions{.constraint = MetricConstraint::psd,
                                .score = MetricScore::distance,
                                .qk_norm = true,
                                .learned_temperature = true,
                                .fixed_norm = true}),
      MixerConfig(MetricOptions{
          .constraint = MetricConstraint::identity, .score = MetricScore::distance, .backend = Backend::reference}));
}

// One of the mixers with which the tokens that a token sees do not depend on later tokens.
inline MixerConfig any_incremental_mixer() {
  static const auto all = every_mixer_that([](const MixerConfig& mixer) { return !chooses_by_whole_sequence(mixer); });
  return one_of(all);
}

// Whether the mixer has a MixerDecoder.
inline bool has_decoder(const MixerConfig& mixer) {
  return make_mixer(mixer, with_pairs({.width = 12, .heads = 3, .context = 4}, mixer))->decoder(1, /*capacity=*/4) !=
         nullptr;
}
inline MixerConfig any_mixer_with_decoder() {
  static const auto all = every_mixer_that(has_decoder);
  return one_of(all);
}

}  // namespace metaformer
