#include "config/loader.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer {

TEST_CASE("positions that do not fit the model say what does", "[config]") {
  const auto [overrides, key, what] = GENERATE(table<std::vector<std::string>, std::string, std::string>({
      {{"model.positions=rotary", "model.mixer=average_pooling"},
       "model.positions",
       "'rotary' changes scores, and the mixer average_pooling has none that it could change: set it to learned, "
       "sinusoidal or none"},
      {{"model.mixer=identity", "model.positions=t5"},
       "model.positions",
       "'t5' changes scores, and the mixer identity has none that it could change: set it to learned, sinusoidal or "
       "none"},
      {{"model.positions={kind: rotary, fraction: 0.01}"},
       "model.positions.fraction",
       "0.01 of a head's 32 features leaves no pair to rotate"},
      {{"model.positions={kind: t5, buckets: 64, max_distance: 32}"},
       "model.positions.max_distance",
       "32 must be above half of model.positions.buckets, 32"},
      {{"model.positions={kind: alibi, base: 3}"},
       "model.positions.base",
       "unknown key for kind 'alibi'; only model.positions: sinusoidal or rotary"},
      {{"model.mixer={kind: metric, backend: fused}", "model.positions=shaw"},
       "model.mixer.backend",
       "'fused' has no shaw positions: set backend to composed, or model.positions to none, learned or sinusoidal"},
      {{"model.mixer={kind: metric, score: as_published}", "model.positions=rotary"},
       "model.positions",
       "score 'as_published' has no rotary positions: set it to none, learned or sinusoidal"},
      {{"model.mixer={kind: metric, values: own, backend: fused}"},
       "model.mixer.backend",
       "'fused' shares the values with the scores: set values to shared, or backend to composed"},
      {{"model.mixer={kind: quadratic, form: full, values: own}"},
       "model.mixer.values",
       "form 'full' scores the inputs, so its projection is one of values already: set it to shared"},
      {{"model.mixer={kind: quadratic, form: full, qk_norm: true}"},
       "model.mixer.qk_norm",
       "form 'full' scores the inputs, which model.norm normalises already: set it to false"},
      {{"model.mixer={kind: scaled_dot_product, learned_temperature: true}"},
       "model.mixer.learned_temperature",
       "true needs normalised queries and keys: set qk_norm to true"},
      {{"model.mixer={kind: metric, learned_temperature: true}"},
       "model.mixer.learned_temperature",
       "true needs normalised queries and keys: set qk_norm to true"},
      {{"model.mixer={kind: quadratic, form: full, learned_temperature: true}"},
       "model.mixer.learned_temperature",
       "form 'full' scores the inputs, which have no qk_norm: set it to false"},
      {{"model.mixer={kind: quadratic, form: full, fixed_norm: true}"},
       "model.mixer.fixed_norm",
       "is for form 'projected': set it to false"},
      {{"model.mixer={kind: metric, constraint: identity, fixed_norm: true}"},
       "model.mixer.fixed_norm",
       "constraint 'identity' has nothing to learn: set it to false"},
  }));
  const auto [code, message] = failure([&] { default_experiment(overrides); });
  INFO(message);
  CHECK(code == ExitCode::usage);
  CHECK(message.starts_with("--set "));
  CHECK_THAT(message, ContainsSubstring(": " + key + ": " + what));
}

TEST_CASE("every mixer takes positions that are added to the embeddings", "[config]") {
  const auto mixer = GENERATE("scaled_dot_product", "quadratic", "metric", "average_pooling", "identity", "none");
  const auto positions = GENERATE("none", "learned", "sinusoidal");
  CHECK_NOTHROW(default_experiment({std::string("model.mixer=") + mixer, std::string("model.positions=") + positions}));
}

}  // namespace metaformer
