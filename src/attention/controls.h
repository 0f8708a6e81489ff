#pragma once
// The two controls of the ablation, which have no options. No torch.

#include "config/mixer_config.h"

namespace metaformer {

struct IdentityOptions {
  static constexpr std::string_view kind = "identity";
  static constexpr std::string_view summary = "the branch returns its input: no mixing";
  MixerCost cost(const MixerShape& shape, const MixerLoad&) const { return {.activations = shape.width}; }
};

struct NoneOptions {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "no mixer branch at all";
  MixerCost cost(const MixerShape& shape, const MixerLoad&) const { return {.activations = shape.width}; }
};

template <class Visitor>
void visit(Visitor&, IdentityOptions&) {}
template <class Visitor>
void visit(Visitor&, NoneOptions&) {}

class Mixer;
std::shared_ptr<Mixer> make(const IdentityOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const NoneOptions& options, const MixerShape& shape);

}  // namespace metaformer
