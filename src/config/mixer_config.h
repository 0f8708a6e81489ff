#pragma once
// The mixer of a model: a kind and its options. Kinds are not listed here; each is registered by where it is
// implemented.

#include "config/mixer_options.h"

namespace metaformer {

// A value like a variant of option structs, but open.
class MixerConfig {
 public:
  // The default kind with its default options.
  MixerConfig() = default;

  // Options of any mixer, registered or not.
  template <class Options>
  requires requires { Options::kind; }
  MixerConfig(Options options) : options_(std::make_unique<MixerOptionsOf<Options>>(std::move(options))) {}

  explicit MixerConfig(const MixerOptions& options) : options_(options.clone()) {}

  MixerConfig(const MixerConfig& other) : options_(other.options_ ? other.options_->clone() : nullptr) {}
  MixerConfig(MixerConfig&&) noexcept = default;
  MixerConfig& operator=(MixerConfig other) noexcept {
    options_ = std::move(other.options_);
    return *this;
  }
  ~MixerConfig() = default;

  // Throws Error (exit code 1) for the default kind when it is not registered.
  const MixerOptions& options() const;
  MixerOptions& options();

  const MixerOptions* operator->() const { return &options(); }
  MixerOptions* operator->() { return &options(); }

  // The options as the struct that they are, or nullptr.
  template <class Options>
  const Options* get_if() const {
    const auto* wrapped = dynamic_cast<const MixerOptionsOf<Options>*>(&options());
    return wrapped != nullptr ? &wrapped->options : nullptr;
  }
  template <class Options>
  Options* get_if() {
    auto* wrapped = dynamic_cast<MixerOptionsOf<Options>*>(&options());
    return wrapped != nullptr ? &wrapped->options : nullptr;
  }

 private:
  std::unique_ptr<MixerOptions> options_;  // none: the default kind, as it is registered
};

// From now on configs know this kind; a kind that is registered already is replaced.
void register_mixer_options(const MixerConfig& defaults);

MixerConfig with_backend(MixerConfig mixer, Backend backend);

// As with variants (config/schema.h).
template <>
inline constexpr bool has_kinds<MixerConfig> = true;
template <>
std::vector<std::string> kinds_of<MixerConfig>();  // in the order of registration
template <>
std::optional<MixerConfig> make_kind<MixerConfig>(std::string_view name);
inline std::string_view kind_of(const MixerConfig& mixer) { return mixer->kind(); }
template <class Use>
void visit_kind(MixerConfig& mixer, Use use) {
  use(mixer.options());
}
template <class Use>
void visit_every_kind(const MixerConfig&, Use use) {
  for (const auto& kind : kinds_of<MixerConfig>()) use(make_kind<MixerConfig>(kind)->options());
}
template <class Visitor>
void visit(Visitor& field, MixerOptions& options) {
  FieldReceiver<Visitor> receiver(field);
  options.visit_fields(receiver);
}

}  // namespace metaformer
