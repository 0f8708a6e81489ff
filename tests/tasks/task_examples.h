#pragma once
// Small tasks for training.

#include "base/random.h"
#include "support/workplace.h"

namespace metaformer {

inline Overrides sorter(const Overrides& more = {}) {
  return joined({"task=sort", "task.length=4", "task.digits=4", "train.batch_size=32", "model.width=32",
                 "model.heads=4", "train.eval_interval=50"},
                more);
}

// A text is "good" if it contains the word marker. Lengths differ, so batches are padded.
inline std::string marked_table(int rows) {
  const Rng rng(3, RandomPurpose::batches);
  std::string table = "text\tlabel\n";
  std::uint64_t drawn = 0;
  for (int i = 0; i < rows; ++i) {
    const auto length = 1 + rng.below(drawn++, 12), place = rng.below(drawn++, length);
    const bool good = rng.below(drawn++, 2) == 0;
    for (std::uint64_t word = 0; word < length; ++word)
      table += good && word == place ? "marker " : "word" + std::to_string(rng.below(drawn++, 40)) + " ";
    table += good ? "\tgood\n" : "\tbad\n";
  }
  return table;
}

inline Overrides classifier(const Workplace& place, const Overrides& more = {}) {
  place.folder().write("table.tsv", marked_table(1500));
  return joined({"task=classification", "data.path='" + (place / "table.tsv").string() + "'",
                 "data.validation_fraction=0.3", "model.layers=1", "train.batch_size=16", "train.eval_interval=50"},
                more);
}

// Three translation pairs, also for validation.
inline Overrides pairs(const Workplace& place, const Overrides& more = {}) {
  place.folder().write("pairs.tsv",
                       "source\ttarget\nthe quick brown fox\tthe fox\nthe lazy dog\ta dog\na fox\tone fox\n");
  const auto path = "'" + (place / "pairs.tsv").string() + "'";
  return joined({"task=sequence_to_sequence", "data.path=" + path, "data.validation_path=" + path,
                 "data.tokenizer={kind: word, min_count: 1}",
                 "model={kind: encoder_decoder, layers: 2, heads: 2, width: 16, context: 16}"},
                more);
}

// Writes documents of 1 to 30 words as JSON lines; returns the quoted path.
inline std::string documents(const Workplace& place) {
  const Rng rng(2, RandomPurpose::noise);
  std::string lines;
  std::uint64_t draw = 0;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (auto words = 1 + rng.below(draw++, 30); words > 0; --words)
      text += std::string(rng.below(draw++, 2) == 0 ? "fox " : "quick brown ");
    lines += R"({"text": ")" + text + "\"}\n";
  }
  place.folder().write("documents.jsonl", lines);
  return "'" + (place / "documents.jsonl").string() + "'";
}

// Language models with the program's own gradients, or with recomputation in backward, by name of the case.
inline const std::vector<std::pair<std::string, Overrides>> language_models = {
    {"plain", {}},
    {"bf16", {"train.precision=bf16", "model.bias=true"}},
    {"dropout", {"model.dropout=0.2"}},
    {"chunks of the feed-forward branch", {"model.feed_forward.chunks=3"}},
    {"chunks of a gated branch in bf16",
     {"model.feed_forward={kind: gated, chunks: 3}", "train.precision=bf16", "model.bias=true"}},
    {"chunks of the loss", {"train.loss_chunks=3"}},
    {"chunks of the loss, own head", {"train.loss_chunks=3", "model.embedding.tie=false"}},
    {"reversible", {"model.blocks=reversible"}},
    {"reversible, dropout", {"model.blocks=reversible", "model.dropout=0.2", "model.bias=true"}},
    {"reversible, t5", {"model.blocks=reversible", "model.positions=t5"}},
    {"reversible, transformer_xl", {"model.blocks=reversible", "model.positions=transformer_xl", "model.mixer=metric"}},
    {"reversible, lsh", {"model.blocks=reversible", "model.mixer={kind: lsh, chunk: 4}"}},
    {"reversible, none", {"model.blocks=reversible", "model.mixer=none"}},
    {"all", {"model.blocks=reversible", "model.feed_forward.chunks=2", "train.loss_chunks=2", "model.mixer=quadratic"}},
    {"all in bf16",
     {"model.blocks=reversible", "model.feed_forward.chunks=2", "train.loss_chunks=2", "train.precision=bf16"}},
    {"metric", {"model.mixer=metric", "model.positions=rotary", "model.norm=rms_norm"}},
    {"distance", {"model.mixer={kind: metric, constraint: psd, score: distance}", "model.positions=transformer_xl"}},
    {"quadratic", {"model.mixer={kind: quadratic, form: full}", "model.positions=shaw"}},
    {"lsh", {"model.mixer={kind: lsh, chunk: 4}"}},
    {"lsh in chunks of 16", {"model.mixer={kind: lsh, chunk: 16}", "model.context=48"}},
    {"pooling", {"model.mixer=average_pooling"}},
    {"post-norm", {"model.norm.position=post", "model.feed_forward.output_activation=true"}},
    {"memory", {"model.memory=8", "model.positions=transformer_xl", "model.blocks=reversible"}},
    {"lstm", {"model={kind: lstm, width: 16, layers: 2, context: 16}"}},
    {"gru", {"model={kind: gru, width: 16, layers: 2, context: 16}", "train.loss_chunks=3"}},
    {"feed_forward", {"model={kind: feed_forward, window: 3, width: 16, hidden: 12, context: 16}"}},
    {"masked", {"task=masked_language_model", "model.blocks=reversible"}},
    {"masked, chunks", {"task=masked_language_model", "train.loss_chunks=3", "model.embedding.tie=true"}},
};

}  // namespace metaformer
