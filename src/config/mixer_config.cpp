#include "config/mixer_config.h"

#include <utility>

#include "base/error.h"

namespace metaformer {

namespace {

constexpr std::string_view default_kind = "scaled_dot_product";

// In the order of registration.
std::vector<MixerConfig>& registry() {
  static std::vector<MixerConfig> defaults;
  return defaults;
}

const MixerConfig* find(std::string_view kind) {
  for (const auto& defaults : registry())
    if (defaults->kind() == kind) return &defaults;
  return nullptr;
}

}  // namespace

const MixerOptions& MixerConfig::options() const {
  if (options_) return *options_;
  const auto* defaults = find(default_kind);
  if (defaults == nullptr) throw Error(ExitCode::failure, fmt::format("no mixer '{}' is registered", default_kind));
  return *defaults->options_;
}

MixerOptions& MixerConfig::options() {
  if (!options_) options_ = std::as_const(*this).options().clone();
  return *options_;
}

void register_mixer_options(const MixerConfig& defaults) {
  auto& all = registry();
  const auto same = std::find_if(all.begin(), all.end(), [&](const auto& m) { return m->kind() == defaults->kind(); });
  if (same == all.end())
    all.push_back(defaults);
  else
    *same = defaults;
}

MixerConfig with_backend(MixerConfig mixer, Backend backend) {
  mixer->set_backend(backend);
  return mixer;
}

template <>
std::vector<std::string> kinds_of<MixerConfig>() {
  std::vector<std::string> kinds;
  for (const auto& defaults : registry()) kinds.emplace_back(defaults->kind());
  return kinds;
}

template <>
std::optional<MixerConfig> make_kind<MixerConfig>(std::string_view name) {
  const auto* defaults = find(name);
  return defaults != nullptr ? std::optional(*defaults) : std::nullopt;
}

}  // namespace metaformer
