// Documents of a language model, several in a row of a batch.

#include <torch/nn/functional/loss.h>

#include <map>
#include <numeric>

#include "support/any_mixer.h"
#include "support/any_positions.h"
#include "tasks/document_examples.h"

namespace metaformer {

namespace {

constexpr std::int64_t context = document_context, alphabet = 20;

// Bytes depend on their place.
Corpus documents() {
  return corpus_of(document_lengths, [](std::size_t i, std::size_t place) { return (7 * place + i * i) % alphabet; });
}
constexpr double all_targets = 4 + 12 + 39 + 2 + 1 + 7 + 8 + 3 + 3 + 11 + 5 + 1 + 6, all_pieces = 16;

ExperimentConfig config_of(const PackingConfig& packing, LossUnit loss = LossUnit::token) {
  ExperimentConfig config;
  transformer(config).context = context;
  config.train.batch_size = 1;
  config.train.accumulate = 1;
  config.train.seed = 5;
  LanguageModelConfig task{.loss = loss};
  task.data.tokenizer = ByteTokenizerOptions{};
  task.data.validation_path = "documents.jsonl";
  task.data.packing = packing;
  config.task = task;
  return config;
}

std::shared_ptr<const BatchStream> stream_of(const ExperimentConfig& config) {
  std::shared_ptr<const Tokenizer> made;
  const auto data = std::make_shared<TextDataset>(documents(), language_model(config).data, context, made);
  return make_text_stream(config, data);
}

std::int64_t steps_of_epoch(const BatchStream& stream) { return std::llround(1 / stream.epochs_per_step()); }

PackingConfig any_packing() {
  return GENERATE(PackingConfig(ShortestFirstPackingConfig{}), PackingConfig(ShortestFirstPackingConfig{{.depth = 0}}),
                  PackingConfig(LeastSquaresPackingConfig{}));
}

// How often each token follows each other one in what a batch asks for.
void count_pairs(const Batch& batch, std::map<std::pair<std::int64_t, std::int64_t>, int>& pairs) {
  for (std::int64_t row = 0; row < batch.ids_bc.size(0); ++row)
    for (std::int64_t c = 0; c < batch.ids_bc.size(1); ++c)
      if (const auto target = batch.targets_bc[row][c].item<std::int64_t>(); target >= 0)
        ++pairs[{batch.ids_bc[row][c].item<std::int64_t>(), target}];
}

std::vector<Batch> epoch_of(const BatchStream& stream) {
  std::vector<Batch> batches;
  for (std::int64_t step = 0; step < steps_of_epoch(stream); ++step)
    batches.push_back(stream.training_batch(step, 0, torch::kCPU));
  return batches;
}

Gpt model_of(const MixerConfig& mixer, const PositionsConfig& positions) {
  return document_model<Gpt>(mixer, positions, alphabet);
}

}  // namespace

TEST_CASE("an epoch of packs has every target of the documents once", "[packing]") {
  const auto stream = stream_of(config_of(any_packing()));
  std::map<std::pair<std::int64_t, std::int64_t>, int> expected;
  const auto corpus = documents();
  for (std::size_t i = 0; i < corpus.document_starts.size(); ++i) {
    const auto end = i + 1 < corpus.document_starts.size() ? corpus.document_starts[i + 1] : corpus.text.size();
    for (auto at = corpus.document_starts[i]; at + 1 < end; ++at) ++expected[{corpus.text[at], corpus.text[at + 1]}];
  }
  const auto steps = steps_of_epoch(*stream);
  REQUIRE(std::abs(static_cast<double>(steps) * stream->epochs_per_step() - 1) < 1e-9);
  for (const std::int64_t epoch : {0, 3}) {
    std::map<std::pair<std::int64_t, std::int64_t>, int> pairs;
    double weight = 0;
    for (auto step = epoch * steps; step < (epoch + 1) * steps; ++step) {
      const auto batch = stream->training_batch(step, 0, torch::kCPU);
      CHECK(batch.ids_bc.size(1) <= context);
      CHECK(batch.has_own_positions());
      CHECK(torch::equal(batch.segments_bc >= 0, batch.targets_bc >= 0));
      weight += batch.weight.item<double>();
      count_pairs(batch, pairs);
    }
    CHECK(weight == all_targets);
    CHECK(pairs == expected);
  }
  std::map<std::pair<std::int64_t, std::int64_t>, int> evaluated;
  for (std::int64_t i = 0; i < stream->evaluation_batches(Split::validation); ++i)
    count_pairs(stream->evaluation_batch(Split::validation, i, torch::kCPU), evaluated);
  CHECK(evaluated == expected);
}

TEST_CASE("a batch of packs depends on the seed and the step alone", "[packing]") {
  auto config = config_of(any_packing());
  const auto stream = stream_of(config);
  const auto ids = [](const BatchStream& of, std::int64_t step) {
    return of.training_batch(step, 0, torch::kCPU).ids_bc;
  };
  const auto third = ids(*stream, 3), far = ids(*stream, 30);
  CHECK(torch::equal(ids(*stream_of(config), 30), far));
  CHECK(torch::equal(ids(*stream, 3), third));
  config.train.seed = 6;
  int same = 0;
  for (std::int64_t step = 0; step < 5; ++step) same += torch::equal(ids(*stream_of(config), step), ids(*stream, step));
  CHECK(same < 5);
}

TEST_CASE("packed documents have the loss and the gradients of documents in rows of their own", "[packing]") {
  const auto mixer = any_mixer();
  if (chooses_by_whole_sequence(mixer)) return does_not_apply("its chunks are made of all tokens of a row");
  const auto positions = any_positions();
  if (act_on_scores(positions) && !has_scores(mixer)) return does_not_apply("no scores");
  const auto loss = GENERATE(LossUnit::token, LossUnit::sequence);
  CAPTURE(kind_of(mixer), kind_of(positions), to_string(loss));
  auto model = model_of(mixer, positions);
  const auto apart = epoch_of(*stream_of(config_of(ShortestFirstPackingConfig{{.depth = 1}}, loss)));
  const auto packed = epoch_of(*stream_of(config_of(ShortestFirstPackingConfig{{.depth = 3}}, loss)));
  CHECK(packed.size() < apart.size());
  const auto expected = mean_loss(model, apart), given = mean_loss(model, packed);
  CHECK(given.loss == Approx(expected.loss).epsilon(1e-10));
  CHECK((given.gradient - expected.gradient).norm().item<double>() < 1e-9 * expected.gradient.norm().item<double>());
  const auto batches = loss == LossUnit::sequence ? all_pieces : all_targets;
  double weight = 0;
  for (const auto& batch : packed) weight += batch.weight.item<double>();
  CHECK(weight == batches);
}

TEST_CASE("a loss by sequence is the mean over documents of their means", "[packing]") {
  auto model = model_of(any_mixer(), NoPositionsConfig{});
  const auto config = config_of(ShortestFirstPackingConfig{}, LossUnit::sequence);
  for (const auto& batch : epoch_of(*stream_of(config))) {
    Pass pass;
    const auto logits_bcv = model.forward(batch, nullptr, pass);
    double sum = 0, sequences = 0;
    for (std::int64_t row = 0; row < batch.ids_bc.size(0); ++row)
      for (std::int64_t segment = 0; segment <= batch.segments_bc[row].max().item<std::int64_t>(); ++segment) {
        const auto own = batch.segments_bc[row] == segment;
        sum += torch::nn::functional::cross_entropy(logits_bcv[row].index({own}), batch.targets_bc[row].index({own}))
                   .item<double>();
        ++sequences;
      }
    CHECK(TokenObjective().loss(logits_bcv, batch).item<double>() == Approx(sum).epsilon(1e-6));
    CHECK(batch.weight.item<double>() == sequences);
  }
}

TEST_CASE("joined packs see the documents before them; an evaluation sees each alone", "[packing]") {
  const auto joined = stream_of(config_of(ShortestFirstPackingConfig{{.separate = false}}));
  const auto batch = joined->training_batch(0, 0, torch::kCPU);
  CHECK(batch.segments_bc.max().item<std::int64_t>() == 0);
  CHECK_FALSE(batch.has_own_positions());
  const auto separate = stream_of(config_of(ShortestFirstPackingConfig{}));
  CHECK(torch::equal(separate->training_batch(0, 0, torch::kCPU).ids_bc, batch.ids_bc));
  const auto validation = joined->evaluation_batch(Split::validation, 0, torch::kCPU);
  CHECK(validation.has_own_positions());
  CHECK(validation.segments_bc.max().item<std::int64_t>() > 0);
}

}  // namespace metaformer
