// Configs of memory, reversible blocks and chunks.

#include "config/loader.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer {

TEST_CASE("memory, reversible blocks and chunks that do not fit say what does", "[config]") {
  const auto [overrides, key, what] = GENERATE(table<std::vector<std::string>, std::string, std::string>({
      {{"model.memory=8", "task=sort", "model.context=11"},
       "model.memory",
       "8 has no meaning for task sort: it is for texts that are read in order, as language_model does"},
      {{"model.memory=8", "task=classification"}, "model.memory", "8 has no meaning for task classification"},
      {{"model.memory=8", "model.mixer=lsh"}, "model.memory", "the mixer lsh takes no longer context: set it to 0"},
      {{"model.memory=8", "train.evaluation=random"},
       "train.evaluation",
       "'random' batches have nothing before them to remember: set it to limited or whole"},
      {{"model.memory=8", "train.overfit_batch=true"}, "train.overfit_batch", "true shows one batch again and again"},
      {{"model.same_length=true"}, "model.same_length", "means nothing without model.memory"},
      {{"model.same_length=true", "model.memory=8", "model.mixer=identity"},
       "model.same_length",
       "has no effect on the mixer identity, which has no scores"},
      {{"model.memory=-1"}, "model.memory", "-1 is out of range; must be at least 0"},
      {{"model.positions={kind: rotary, clamp_length: 3}"},
       "model.positions.clamp_length",
       "unknown key for kind 'rotary'; only model.positions: transformer_xl"},
      {{"model.positions=transformer_xl", "model.width=33", "model.heads=3"},
       "model.width",
       "33 is odd, and transformer_xl has a sine and a cosine for each frequency"},
      {{"model.positions=transformer_xl", "model.mixer=lsh"}, "model.positions", "'transformer_xl' changes scores"},
      {{"model.blocks=reversible", "model.norm.position=post"},
       "model.blocks",
       "'reversible' takes branches off again, which a norm behind their sum prevents: set model.norm.position to pre "
       "or both"},
      {{"model.blocks=reversible", "model.residual=false"},
       "model.blocks",
       "'reversible' is made of residual connections"},
      {{"model.blocks=revers"}, "model.blocks", "reversible"},
      {{"model.feed_forward.chunks=0"}, "model.feed_forward.chunks", "0 is out of range; must be at least 1"},
      {{"train.loss_chunks=2", "task=classification"}, "train.loss_chunks", "has no meaning for task classification"},
  }));
  INFO(key);
  const auto [code, message] = failure([&, given = overrides] { default_experiment(given); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring(key + ": ") && ContainsSubstring(what));
}

TEST_CASE("memory, reversible blocks and chunks go together", "[config]") {
  CHECK_NOTHROW(default_experiment({"model.memory=8", "model.same_length=true", "model.blocks=reversible",
                                    "model.feed_forward={kind: gated, chunks: 4}", "train.loss_chunks=4",
                                    "model.positions={kind: transformer_xl, shared_biases: false, clamp_length: 5}"}));
}

}  // namespace metaformer
