#pragma once
// The mixer of a model: a kind, its options, and the positions it needs.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/text.h"
#include "config/schema.h"

namespace metaformer {

// The fields of options whose type is not known where they are visited: those of a mixer, which a registry holds.

// A value that is one of several names.
struct Choice {
  std::vector<std::string> names;
  std::size_t index = 0;
};

// A value of a type that has its own text form (see TextForm).
struct TextValue {
  std::string text;
  std::string expected;  // "a number of tokens (at least 1) or 'all'"
  std::string type;      // "integer, at least 1, or all"
  std::function<bool(const std::string&)> is_allowed;
};

// Specialised for types that are written as a text: constants `expected` and `type`, `static std::string write(const
// T&)` and `static bool read(const std::string&, T&)`, which is false for a text that is not allowed.
template <class T>
struct TextForm;

// A visitor of fields (config/schema.h) with every type that an option may have.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void field(const char* name, bool& value, const char* help) = 0;
  virtual void field(const char* name, std::string& value, const char* help) = 0;
  virtual void field(const char* name, Choice& value, const char* help) = 0;
  virtual void field(const char* name, TextValue& value, const char* help) = 0;
  virtual void field(const char* name, std::int64_t& value, const Range& range, const char* help) = 0;
  virtual void field(const char* name, double& value, const Range& range, const char* help) = 0;
  virtual void field(const char* name, std::optional<double>& value, const Range& range, const char* help) = 0;
};

// From the `visit` of a struct to a FieldVisitor.
class FieldSender {
 public:
  explicit FieldSender(FieldVisitor& to) : to_(to) {}

  template <class T>
  void operator()(const char* name, T& value, const Range& range, const char* help) {
    to_.field(name, value, range, help);
  }
  template <class T>
  void operator()(const char* name, T& value, const char* help) {
    if constexpr (std::is_enum_v<T>) {
      Choice choice{names_of<T>(), static_cast<std::size_t>(value)};
      to_.field(name, choice, help);
      value = static_cast<T>(choice.index);
    } else if constexpr (requires { TextForm<T>::expected; }) {
      TextValue text{TextForm<T>::write(value), TextForm<T>::expected, TextForm<T>::type, [](const std::string& given) {
                       T ignored;
                       return TextForm<T>::read(given, ignored);
                     }};
      to_.field(name, text, help);
      TextForm<T>::read(text.text, value);
    } else {
      to_.field(name, value, help);
    }
  }

 private:
  FieldVisitor& to_;
};

// From a FieldVisitor to a visitor of structs.
template <class Visitor>
class FieldReceiver : public FieldVisitor {
 public:
  explicit FieldReceiver(Visitor& to) : to_(to) {}
  void field(const char* name, bool& value, const char* help) override { to_(name, value, help); }
  void field(const char* name, std::string& value, const char* help) override { to_(name, value, help); }
  void field(const char* name, Choice& value, const char* help) override { to_(name, value, help); }
  void field(const char* name, TextValue& value, const char* help) override { to_(name, value, help); }
  void field(const char* name, std::int64_t& value, const Range& range, const char* help) override {
    to_(name, value, range, help);
  }
  void field(const char* name, double& value, const Range& range, const char* help) override {
    to_(name, value, range, help);
  }
  void field(const char* name, std::optional<double>& value, const Range& range, const char* help) override {
    to_(name, value, range, help);
  }

 private:
  Visitor& to_;
};

// How a model knows where a token stands.
struct LearnedPositionsConfig {
  static constexpr std::string_view kind = "learned";
  static constexpr std::string_view summary = "a learned vector for every position, added to the token's embedding";
};

struct NoPositionsConfig {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "nothing: only the mixer's mask and window depend on positions";
};

struct SinusoidalPositionsConfig {
  static constexpr std::string_view kind = "sinusoidal";
  static constexpr std::string_view summary = "sines and cosines, added to the token's embedding (Vaswani et al. 2017)";
  double base = 10000;
};

struct RotaryPositionsConfig {
  static constexpr std::string_view kind = "rotary";
  static constexpr std::string_view summary =
      "queries and keys rotated by angles in proportion to the position (RoPE, Su et al. 2021)";
  double base = 10000;
  double fraction = 1;

  // Of `key_width` features of a head, those that are rotated: an even number.
  std::int64_t rotated_width(std::int64_t key_width) const {
    return static_cast<std::int64_t>(fraction * static_cast<double>(key_width)) / 2 * 2;
  }
};

struct AlibiPositionsConfig {
  static constexpr std::string_view kind = "alibi";
  static constexpr std::string_view summary =
      "scores fall with the distance, by a slope of each head (ALiBi, Press et al. 2022)";
};

struct T5PositionsConfig {
  static constexpr std::string_view kind = "t5";
  static constexpr std::string_view summary =
      "a learned number per head and bucket of distances, added to the scores (Raffel et al. 2020)";
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;
};

struct ShawPositionsConfig {
  static constexpr std::string_view kind = "shaw";
  static constexpr std::string_view summary =
      "learned vectors of clipped distances, added to keys and values (Shaw et al. 2018)";
  std::int64_t max_distance = 16;
};

struct TransformerXlPositionsConfig {
  static constexpr std::string_view kind = "transformer_xl";
  static constexpr std::string_view summary =
      "scores with projected sinusoids of the distance, and two learned vectors in place of the query's position "
      "(Transformer-XL, Dai et al. 2019)";
  bool shared_biases = true;
  std::int64_t clamp_length = 0;
};

using PositionsConfig =
    std::variant<LearnedPositionsConfig, NoPositionsConfig, SinusoidalPositionsConfig, RotaryPositionsConfig,
                 AlibiPositionsConfig, T5PositionsConfig, ShawPositionsConfig, TransformerXlPositionsConfig>;

// Whether positions change scores, and so need a mixer that has them; the others are added to the embeddings.
inline bool act_on_scores(const PositionsConfig& positions) {
  return is<RotaryPositionsConfig>(positions) || is<AlibiPositionsConfig>(positions) ||
         is<T5PositionsConfig>(positions) || is<ShawPositionsConfig>(positions) ||
         is<TransformerXlPositionsConfig>(positions);
}

template <class Visitor>
void visit(Visitor&, LearnedPositionsConfig&) {}

template <class Visitor>
void visit(Visitor&, NoPositionsConfig&) {}

template <class Visitor>
void visit(Visitor& field, SinusoidalPositionsConfig& c) {
  field("base", c.base, Range{.low = 1, .low_open = true}, "the longest wavelength is 2 pi base tokens");
}

template <class Visitor>
void visit(Visitor& field, RotaryPositionsConfig& c) {
  field("base", c.base, Range{.low = 1, .low_open = true}, "the longest wavelength is 2 pi base tokens");
  field("fraction", c.fraction, Range{.low = 0, .high = 1, .low_open = true},
        "of the features of a head, the first ones, that are rotated");
}

template <class Visitor>
void visit(Visitor&, AlibiPositionsConfig&) {}

template <class Visitor>
void visit(Visitor& field, T5PositionsConfig& c) {
  field("buckets", c.buckets, between(4, 4096),
        "half of them for exact distances, the others logarithmic; a classifier uses half for each side");
  field("max_distance", c.max_distance, between(2, 1 << 20), "from here on all distances share the last bucket");
}

template <class Visitor>
void visit(Visitor& field, ShawPositionsConfig& c) {
  field("max_distance", c.max_distance, between(1, 4096), "larger distances are clipped to this one");
}

template <class Visitor>
void visit(Visitor& field, TransformerXlPositionsConfig& c) {
  field("shared_biases", c.shared_biases, "all layers share the two learned vectors u and v; else each has its own");
  field("clamp_length", c.clamp_length, between(0, 1 << 20),
        "larger distances, to tokens behind or ahead, count as this one; 0: none does");
}

// What the rest of the program asks of a mixer's options: their fields, whether they fit the model, what they cost.
// Each mixer says so beside its implementation, in attention/, with a struct that MixerOptionsOf wraps.

// reference: the formula as written, with the whole score matrix. composed: batched products around the library's
// attention. fused: the CUDA kernels of cuda/. automatic: the one of them that supports the options and is expected to
// be the fastest (attention/kernel_choice.h); never the reference, unless there is no other.
enum class Backend { automatic, reference, composed, fused };
template <>
struct EnumNames<Backend> {
  static constexpr std::array<std::string_view, 4> values = {"auto", "reference", "composed", "fused"};
};

constexpr const char* backend_help =
    "reference: the formula as written; composed: batched products around the library's attention; fused: CUDA "
    "kernels, "
    "where the mixer has them; auto chooses";

// What a mixer needs to know of the model around it.
struct MixerShape {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;  // tokens of the sequences that the model is made for
  double dropout = 0;        // of scores, in training
  bool bias = false;         // in projections
  double output_std = 0.02;  // standard deviation of the initial weights of its output projection
  PositionsConfig positions = NoPositionsConfig{};  // of which those that act on scores concern a mixer
  bool crosses = false;  // its context is another sequence: what a decoder sees of an encoder
  std::int64_t head_width() const { return width / heads; }
};

// What a forward pass is given.
struct MixerLoad {
  std::int64_t context = 0;  // tokens of a sequence
  double tokens = 0;         // of all sequences
  double pairs = 0;          // of tokens of which one sees the other, of all sequences
};

struct MixerCost {
  std::int64_t parameters = 0;
  double operations = 0;         // multiplications and additions of a forward pass
  std::int64_t activations = 0;  // numbers that a token leaves for the backward pass
  bool keeps_pairs = false;      // holds numbers for every pair of tokens and head
};

// Why options are at odds with each other or with the model: `what` of the first of the keys ("model.mixer.score"), the
// others being those that could be changed in its place.
struct MixerProblem {
  std::vector<std::string> keys;
  std::string what;
};

class MixerOptions {
 public:
  virtual ~MixerOptions() = default;
  virtual std::unique_ptr<MixerOptions> clone() const = 0;
  virtual std::string_view kind() const = 0;
  virtual std::string_view summary() const = 0;
  virtual void visit_fields(FieldVisitor& field) = 0;

  // Those that these options have; a mixer with one implementation has composed.
  virtual std::vector<Backend> backends() const = 0;
  virtual Backend backend() const = 0;
  virtual void set_backend(Backend backend) = 0;  // of a mixer with one implementation: does nothing

  // Whether it mixes by scores, so that positions may act on them.
  virtual bool has_scores() const = 0;

  // Whether its context can be another sequence.
  virtual bool can_cross() const = 0;

  // Whether the tokens that a token sees are chosen by all tokens of a sequence, those behind it included. Then a
  // change of the future may change what is made of the past, though no token sees one behind it, and text that is
  // generated token by token is not what a pass over the whole text gives.
  virtual bool chooses_by_whole_sequence() const = 0;

  // Features of a query and a key, of a mixer with scores.
  virtual std::int64_t key_width(const MixerShape& shape) const = 0;

  virtual std::optional<MixerProblem> problem(const MixerShape& shape) const = 0;
  virtual MixerCost cost(const MixerShape& shape, const MixerLoad& load) const = 0;
};

inline MixerProblem no_such_backend(const MixerOptions& options) {
  std::vector<std::string> names = {"auto"};
  for (const auto backend : options.backends()) names.emplace_back(to_string(backend));
  return {.keys = {"model.mixer.backend", "model.mixer.kind"},
          .what = fmt::format("{} with these options has no backend '{}': set it to {}", options.kind(),
                              to_string(options.backend()), join_alternatives(names))};
}

// `Options` is plain data with `kind`, `summary`, a `visit` (config/schema.h) and `cost(shape, load)`; and, where they
// apply, `backend`, `backends()`, `problem(shape)`, `can_cross()`, `key_width(shape)` where that is not a head's,
// `static constexpr bool has_scores` and `chooses_by_whole_sequence`.
template <class Options>
class MixerOptionsOf final : public MixerOptions {
 public:
  explicit MixerOptionsOf(Options given) : options(std::move(given)) {}

  std::unique_ptr<MixerOptions> clone() const override { return std::make_unique<MixerOptionsOf>(*this); }
  std::string_view kind() const override { return Options::kind; }
  std::string_view summary() const override { return Options::summary; }
  void visit_fields(FieldVisitor& field) override {
    FieldSender sender(field);
    visit(sender, options);
  }

  std::vector<Backend> backends() const override {
    if constexpr (requires { options.backends(); }) return options.backends();
    return {Backend::composed};
  }
  Backend backend() const override {
    if constexpr (requires { options.backend; }) return options.backend;
    return Backend::composed;
  }
  void set_backend([[maybe_unused]] Backend backend) override {
    if constexpr (requires { options.backend; }) options.backend = backend;
  }

  bool has_scores() const override {
    if constexpr (requires { Options::has_scores; }) return Options::has_scores;
    return false;
  }
  bool can_cross() const override {
    if constexpr (requires { options.can_cross(); }) return options.can_cross();
    return false;
  }
  bool chooses_by_whole_sequence() const override {
    if constexpr (requires { Options::chooses_by_whole_sequence; }) return Options::chooses_by_whole_sequence;
    return false;
  }

  std::int64_t key_width(const MixerShape& shape) const override {
    if constexpr (requires { options.key_width(shape); }) return options.key_width(shape);
    return shape.head_width();
  }

  std::optional<MixerProblem> problem(const MixerShape& shape) const override {
    if constexpr (requires { options.problem(shape); })
      if (auto found = options.problem(shape)) return found;
    const auto known = backends();
    if (backend() == Backend::automatic || std::find(known.begin(), known.end(), backend()) != known.end())
      return std::nullopt;
    return no_such_backend(*this);
  }
  MixerCost cost(const MixerShape& shape, const MixerLoad& load) const override { return options.cost(shape, load); }

  Options options;
};

// The mixer of a model: a kind and its options. Kinds are not listed here; each is registered by where it is
// implemented.

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
