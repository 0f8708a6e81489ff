#pragma once
// Tests that hold for every mixer.

#include "config/mixer_config.h"
#include "support/mixer_options.h"
#include "support/torch_catch.h"

namespace metaformer {

// Counts the values that each option is tried with, or sets option i to its value number `chosen[i]`.
class OptionValues : public FieldVisitor {
 public:
  std::vector<std::size_t> counts;
  const std::vector<std::size_t>* chosen = nullptr;

  void field(const char*, bool& value, const char*) override {
    pick(2, [&](std::size_t i) { value = i == 1; });
  }
  void field(const char*, Choice& value, const char*) override {
    pick(value.names.size(), [&](std::size_t i) { value.index = i; });
  }
  void field(const char*, TextValue& value, const char*) override {
    std::vector<std::string> texts;
    for (const auto* text : {"1", "2", "3", "40", "all"})
      if (value.is_allowed(text)) texts.emplace_back(text);
    pick(texts.size(), [&](std::size_t i) { value.text = texts[i]; });
  }
  void field(const char*, std::string&, const char*) override {}
  void field(const char*, std::int64_t&, const Range&, const char*) override {}
  void field(const char*, double&, const Range&, const char*) override {}
  void field(const char*, std::optional<double>&, const Range&, const char*) override {}

 private:
  template <class Set>
  void pick(std::size_t count, Set set) {
    if (chosen != nullptr) set((*chosen)[counts.size()]);
    counts.push_back(count);
  }
};

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
  const auto* dot = mixer.get_if<ScaledDotProductOptions>();
  const auto* quadratic = mixer.get_if<QuadraticOptions>();
  const auto* metric = mixer.get_if<MetricOptions>();
  const bool multiplies = (dot && dot->learned_temperature) ||
                          (quadratic && (quadratic->learned_temperature || quadratic->fixed_norm)) ||
                          (metric && (metric->learned_temperature || metric->fixed_norm));
  const bool shares = (quadratic && quadratic->values == MixerValues::shared) ||
                      (metric && metric->values == MixerValues::shared) || dot;
  return !multiplies || (shares && mixer->backend() == mixer->backends().front());
}

// Every kind that is registered, with every combination of its options that is not refused, for the backends that every
// machine has.
inline std::vector<MixerConfig> every_mixer() {
  const MixerShape shape{.width = 12, .heads = 3};
  std::vector<MixerConfig> all;
  visit_every_kind(MixerConfig(), [&](const MixerOptions& defaults) {
    OptionValues counter;
    defaults.clone()->visit_fields(counter);
    std::vector<std::size_t> chosen(counter.counts.size());
    do {
      MixerConfig mixer(defaults);
      OptionValues setter;
      setter.chosen = &chosen;
      mixer->visit_fields(setter);
      const auto backend = mixer->backend();
      const bool runs_here = backend == Backend::composed || backend == Backend::reference;
      if (runs_here && !mixer->problem(shape) && is_tried(mixer)) all.push_back(std::move(mixer));
    } while (advance(chosen, counter.counts));
  });
  return all;
}

// One of every_mixer(): the test case runs once with each.
inline MixerConfig any_mixer() {
  static const auto all = every_mixer();
  return all[GENERATE_COPY(range(std::size_t{0}, all.size()))];
}

}  // namespace metaformer
