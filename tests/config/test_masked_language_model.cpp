// Configs of masked language models.

#include "config/loader.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

namespace {

ExperimentConfig masked(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), "task=masked_language_model");
  return default_experiment(overrides).config;
}

}  // namespace

TEST_CASE("what a masked language model cannot have is an error that says so", "[config][masking]") {
  const auto [overrides, key, what] = GENERATE(table<std::vector<std::string>, std::string, std::string>({
      {{"task.fraction=0"}, "task.fraction", "0 is out of range; must be above 0 and at most 1"},
      {{"task.fraction=1.1"}, "task.fraction", "must be above 0 and at most 1"},
      {{"task.masked=-0.1"}, "task.masked", "must be at least 0 and at most 1"},
      {{"task.masked=0.8", "task.random=0.3"}, "task.masked", "0.8 and task.random 0.3 together are above 1"},
      {{"task.sample_interval=10"}, "task.sample_interval", "only task: language_model"},
      {{"task.whole_words=true"}, "task.whole_words", "true has no effect with data.tokenizer character"},
      {{"task.whole_words=true", "data.tokenizer=byte"}, "task.whole_words", "has no effect with data.tokenizer byte"},
      {{"task.whole_words=true", "data.tokenizer=word"}, "task.whole_words", "has no effect with data.tokenizer word"},
      {{"model.memory=8"}, "model.memory", "8 has no meaning for task masked_language_model"},
      {{"model.same_length=true"}, "model.same_length", "means nothing without model.memory"},
      {{"model.embedding.ngrams.order=2"}, "model.embedding.ngrams.order", "no meaning for task masked_language_model"},
      {{"model.embedding.scale=log_count_ratio"},
       "model.embedding.scale",
       "'log_count_ratio' has no meaning for task masked_language_model"},
      {{"model=linear"}, "model.kind", "linear has no meaning for task masked_language_model"},
      {{"model=lstm"}, "model.kind", "lstm predicts tokens from those before them, and task masked_language_model"},
      {{"model=gru"}, "model.kind", "gru predicts tokens from those before them, and task masked_language_model"},
      {{"model=feed_forward"},
       "model.kind",
       "feed_forward predicts tokens from those before them, and task masked_language_model"},
      {{"data.corpus=imdb"}, "data.corpus", "'imdb' is for task classification"},
      {{"data.format=csv"}, "data.format", "a language model reads text or jsonl, not csv"},
      {{"data.tokenizer={kind: unigram, sampling: 0.1}"},
       "data.tokenizer.sampling",
       "0.1 has no effect on a language model"},
      {{"data.packing=spfhp", "data.separate_documents=true"},
       "data.separate_documents",
       "has no effect with data.packing"},
  }));
  INFO(key);
  const auto [code, message] = failure([&, given = overrides] { masked(given); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring(key) && ContainsSubstring(what));
}

TEST_CASE("a masked language model takes whole words of pieces, dropped spaces, and either loss", "[config][masking]") {
  const auto config = masked({"task.whole_words=true", "data.tokenizer={kind: bpe, whitespace: dropped}",
                              "task.loss=sequence", "task.fraction=1", "task.masked=0.5", "task.random=0.5"});
  const auto& task = std::get<MaskedLanguageModelConfig>(config.task);
  CHECK(task.whole_words);
  CHECK(task.loss == LossUnit::sequence);
  CHECK_FALSE(is_causal(config.task));
  CHECK(text_data_of(config.task) == &task.data);
  CHECK_NOTHROW(masked({"model.positions=transformer_xl", "train.loss_chunks=3", "model.blocks=reversible"}));
  CHECK_NOTHROW(masked({"model.mixer=lsh", "data.packing={kind: nnlshp, separate: false}"}));
}

TEST_CASE("a text keeps all of its keys when it becomes that of a masked language model", "[config][masking]") {
  const TemporaryFolder folder;
  const auto file = folder.write("a.yaml",
                                 "task: {kind: language_model, sample_interval: 5}\n"
                                 "data: {separate_documents: true, tokenizer: byte}\n");
  const auto experiment = load_experiment(file.string(), {"task=masked_language_model"});
  const auto& data = std::get<MaskedLanguageModelConfig>(experiment.config.task).data;
  CHECK(data.separate_documents);
  CHECK(is<ByteTokenizerOptions>(data.tokenizer));
  CHECK(experiment.provenance.contains("data.separate_documents"));
  CHECK_FALSE(experiment.provenance.contains("task.sample_interval"));
}

}  // namespace metaformer
