#include "config/mixer_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace metaformer {

namespace {

using Problem = std::optional<MixerProblem>;

// A problem of options of the mixer ("score"), or keys of the model ("model.positions").
template <class... Values>
MixerProblem at_odds(std::vector<std::string> keys, fmt::format_string<const Values&...> what,
                     const Values&... values) {
  for (auto& key : keys)
    if (!key.starts_with("model.")) key = "model.mixer." + key;
  return {std::move(keys), fmt::format(what, values...)};
}

// Unnormalised values are those before qk_norm, so they need it.
Problem values_problem(const auto& options) {
  if (options.values != MixerValues::unnormalised || options.qk_norm) return std::nullopt;
  return at_odds({"values", "qk_norm"},
                 "without qk_norm nothing is normalised: set values to shared, or qk_norm to true");
}

// A temperature makes up for the fixed length of normalised queries and keys.
Problem temperature_problem(const auto& options) {
  if (!options.learned_temperature || options.qk_norm) return std::nullopt;
  return at_odds({"learned_temperature", "qk_norm"}, "true needs normalised queries and keys: set qk_norm to true");
}

// A problem of mixers that split the features of a head in two: their number is odd.
Problem odd_heads_problem(const MixerShape& shape, std::string_view mixer, std::string_view why) {
  if (shape.head_width() % 2 == 0) return std::nullopt;
  return at_odds({"model.width", "model.heads", "model.mixer"},
                 "heads of {} features are odd, and {} {}: change model.width or model.heads", shape.head_width(),
                 mixer, why);
}

// Reads a multiple of `step` that is at least `fewest`, or `word`, which sets 0. Returns false for other texts.
bool read_number_or(std::string_view word, const std::string& text, std::int64_t fewest, std::int64_t step,
                    std::int64_t& value) {
  std::int64_t number = 0;
  const bool is_number =
      parse_whole_number(text, number) == WholeNumber::valid && number >= fewest && number % step == 0;
  if (!is_number && text != word) return false;
  value = is_number ? number : 0;
  return true;
}

}  // namespace

Problem fused_problem(const MixerShape& shape) {
  if (shape.crosses)
    return at_odds({"backend"}, "'fused' mixes a sequence with itself only: set backend to auto or composed");
  if (act_on_scores(shape.positions))
    return at_odds({"backend", "model.positions"},
                   "'fused' has no {} positions: set backend to composed, or model.positions to none, learned or "
                   "sinusoidal",
                   kind_of(shape.positions));
  if (shape.head_width() % 8 != 0 || shape.head_width() > 128)
    return at_odds({"backend", "model.width", "model.heads"},
                   "'fused' needs heads whose width is a multiple of 8 up to 128, not {}; change model.width or "
                   "model.heads, or set composed",
                   shape.head_width());
  return std::nullopt;
}

Problem LinearAttentionOptions::problem(const MixerShape&) const {
  if (features == LinearFeatures::taylor || feature_width == LinearAttentionOptions{}.feature_width)
    return std::nullopt;
  return at_odds({"feature_width", "features"},
                 "has no effect with features elu: leave it out, or set model.mixer.features to taylor");
}

Problem RetentionOptions::problem(const MixerShape& shape) const {
  return odd_heads_problem(shape, kind, "rotates them in pairs");
}

Problem GatedLinearAttentionOptions::problem(const MixerShape& shape) const {
  return odd_heads_problem(shape, kind, "has keys of half a head's width");
}

Problem GatedDeltaNetOptions::problem(const MixerShape& shape) const {
  return odd_heads_problem(shape, kind, "has keys of half a head's width");
}

Problem ShortConvolutionOptions::problem(const MixerShape&) const {
  if (convolution > 1) return std::nullopt;
  return at_odds({"convolution", "kind"}, "a convolution of {} mixes no tokens: set it to 2 or more", convolution);
}

Problem ScaledDotProductOptions::problem(const MixerShape& shape) const {
  if (auto problem = temperature_problem(*this)) return problem;
  if (key_value_heads > 0 && shape.heads % key_value_heads != 0)
    return at_odds({"key_value_heads", "model.heads"},
                   "{} does not divide model.heads {}: set it to a divisor, or to 0 for as many as there are heads",
                   key_value_heads, shape.heads);
  if (window > 0 && shape.crosses)
    return at_odds({"window"}, "{} has no meaning for tokens of another sequence, which have no distance: set it to 0",
                   window);
  if (sinks && weights == AttentionWeights::sigmoid)
    return at_odds(
        {"sinks", "weights"},
        "true needs the sum of a softmax, which weights 'sigmoid' do not have: set it to false, or weights to softmax");
  return std::nullopt;
}

Problem DifferentialOptions::problem(const MixerShape& shape) const {
  if (shape.heads % 2 == 0) return std::nullopt;
  return at_odds({"model.heads", "model.mixer"}, "{} heads cannot be paired, and {} needs pairs of heads: set it to {}",
                 shape.heads, kind, shape.heads + 1);
}

Problem QuadraticOptions::problem(const MixerShape& shape) const {
  if (form == QuadraticForm::full) {
    if (values != MixerValues::shared)
      return at_odds({"values", "form"},
                     "form 'full' scores the inputs, so its only projection is that of the values: set it to shared");
    if (qk_norm)
      return at_odds({"qk_norm", "form"},
                     "form 'full' scores the inputs, which model.norm normalises already: set it to false");
    if (learned_temperature)
      return at_odds({"learned_temperature", "form"},
                     "form 'full' scores the inputs, which have no qk_norm: set it to false");
    if (fixed_norm) return at_odds({"fixed_norm", "form"}, "is for form 'projected': set it to false");
    return std::nullopt;
  }
  if (auto problem = temperature_problem(*this)) return problem;
  if (auto problem = values_problem(*this)) return problem;
  return backend == Backend::fused ? fused_problem(shape) : std::nullopt;
}

Problem MetricOptions::problem(const MixerShape& shape) const {
  const bool symmetric = constraint == MetricConstraint::symmetric, published = score == MetricScore::as_published;
  if (score == MetricScore::distance && symmetric)
    return at_odds({"score", "constraint"},
                   "'distance' needs a metric that is never negative: set constraint to psd, diagonal or identity");
  if (published && !symmetric)
    return at_odds({"score", "constraint"},
                   "'as_published' is the formula for a packed metric: set constraint to symmetric");
  if (published && (backend == Backend::composed || backend == Backend::fused))
    return at_odds({"backend", "score"},
                   "score 'as_published' has only the reference backend: set backend to auto or reference");
  if (published && act_on_scores(shape.positions))
    return at_odds({"model.positions", "score"},
                   "score 'as_published' has no {} positions: set it to none, learned or sinusoidal",
                   kind_of(shape.positions));
  if (auto problem = values_problem(*this)) return problem;
  if (fixed_norm && constraint == MetricConstraint::identity)
    return at_odds({"fixed_norm", "constraint"}, "constraint 'identity' has nothing to learn: set it to false");
  if (auto problem = temperature_problem(*this)) return problem;
  return backend == Backend::fused ? fused_problem(shape) : std::nullopt;
}

bool LshBuckets::read(const std::string& text) { return read_number_or(word, text, fewest, step, count); }

bool PoolingWindow::read(const std::string& text) { return read_number_or(word, text, fewest, step, tokens); }

std::int64_t LshOptions::bucket_count(std::int64_t context) const {
  const auto half_chunks = 2 * context / chunk;
  return buckets.automatic() ? std::max<std::int64_t>(2, half_chunks + half_chunks % 2) : buckets.count;
}

Backend backend_of(const MixerConfig& mixer) {
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { options.backend; }) return options.backend;
        return Backend::composed;
      },
      mixer);
}

MixerConfig with_backend(MixerConfig mixer, Backend backend) {
  const auto set = [&](auto& options) {
    if constexpr (requires { options.backend; }) options.backend = backend;
  };
  std::visit(set, mixer);
  return mixer;
}

Problem problem_of(const MixerConfig& mixer, const MixerShape& shape) {
  auto problem = std::visit([&](const auto& options) { return options.problem(shape); }, mixer);
  const auto backend = backend_of(mixer);
  const auto known = backends_of(mixer);
  if (problem || backend == Backend::automatic || std::find(known.begin(), known.end(), backend) != known.end())
    return problem;
  std::vector<std::string> names = {"auto"};
  for (const auto each : known) names.emplace_back(to_string(each));
  return at_odds({"backend", "kind"}, "{} with these options has no backend '{}': set it to {}", kind_of(mixer),
                 to_string(backend), join_alternatives(names));
}

}  // namespace metaformer
