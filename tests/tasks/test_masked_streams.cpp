// The batches of a masked language model: windows of a text, and packs of documents.

#include <algorithm>
#include <numeric>

#include "config/mixer_config.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"
#include "tasks/document_examples.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

namespace {

constexpr std::int64_t context = document_context, alphabet = 200, mask = 256;

// Bytes count up over all documents.
Corpus counting_corpus(const std::vector<std::size_t>& lengths) {
  return corpus_of(lengths, [](std::size_t, std::size_t place) { return place % static_cast<std::size_t>(alphabet); });
}

ExperimentConfig config_of(const PackingConfig& packing, LossUnit loss = LossUnit::token) {
  ExperimentConfig config;
  transformer(config).context = context;
  config.train.batch_size = 2;
  config.train.accumulate = 1;
  config.train.seed = 5;
  MaskedLanguageModelConfig task{.fraction = 0.3, .loss = loss};
  task.data.tokenizer = ByteTokenizerOptions{};
  task.data.validation_path = "documents.jsonl";
  task.data.packing = packing;
  config.task = task;
  return config;
}

std::shared_ptr<const BatchStream> stream_of(const ExperimentConfig& config,
                                             const std::vector<std::size_t>& lengths = document_lengths) {
  static const ByteTokenizer tokenizer;
  std::shared_ptr<const Tokenizer> made;
  const auto data = std::make_shared<TextDataset>(counting_corpus(lengths), *text_data_of(config.task), context, made);
  return make_masked_stream(config, data, tokenizer);
}

PackingConfig any_packing() {
  return GENERATE(PackingConfig(NoPackingConfig{}), PackingConfig(ShortestFirstPackingConfig{}),
                  PackingConfig(LeastSquaresPackingConfig{}));
}

// What a batch asks for, where it is no target what it shows: the tokens of the text.
torch::Tensor originals(const Batch& batch) {
  return torch::where(batch.targets_bc >= 0, batch.targets_bc, batch.ids_bc);
}

torch::Tensor is_token(const Batch& batch) {
  return batch.segments_bc.defined() ? batch.segments_bc >= 0 : torch::ones_like(batch.ids_bc, torch::kBool);
}

std::vector<std::int64_t> to_vector(const torch::Tensor& values) {
  const auto flat = values.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

std::vector<Batch> evaluation_of(const BatchStream& stream) {
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < stream.evaluation_batches(Split::validation); ++i)
    batches.push_back(stream.evaluation_batch(Split::validation, i, torch::kCPU));
  return batches;
}

MaskedLanguageModel model_of(const MixerConfig& mixer, const PositionsConfig& positions) {
  return document_model<MaskedLanguageModel>(mixer, positions, mask);
}

// The same targets, each weighing as in a loss by sequence: by its segment.
Batch by_sequence(Batch batch) {
  batch.target_weights_bc = torch::zeros_like(batch.ids_bc, torch::kFloat);
  double sequences = 0;
  for (std::int64_t row = 0; row < batch.ids_bc.size(0); ++row)
    for (std::int64_t segment = 0; segment <= batch.segments_bc[row].max().item<std::int64_t>(); ++segment) {
      const auto own_c = (batch.segments_bc[row] == segment) & (batch.targets_bc[row] >= 0);
      batch.target_weights_bc[row].index_put_({own_c}, 1 / own_c.sum().to(torch::kFloat));
      ++sequences;
    }
  batch.weight = torch::full({}, sequences, torch::kDouble);
  return batch;
}

}  // namespace

TEST_CASE("an evaluation has every token of the split once, in batches of any size", "[masking]") {
  auto config = config_of(any_packing());
  const auto stream = stream_of(config, std::vector<std::size_t>(400, 37));  // more than one batch
  std::vector<std::int64_t> seen(static_cast<std::size_t>(alphabet));
  double targets = 0;
  const auto batches = evaluation_of(*stream);
  CHECK(batches.size() > 1);
  for (const auto& batch : batches) {
    for (const auto token : to_vector(originals(batch).masked_select(is_token(batch))))
      ++seen.at(static_cast<std::size_t>(token));
    targets += batch.weight.item<double>();
    CHECK(batch.weight.item<double>() == (batch.targets_bc >= 0).sum().item<double>());
    CHECK((batch.targets_bc < 0).logical_or(is_token(batch)).all().item<bool>());
    CHECK(wanted_targets_t(batch).ge(0).sum().item<double>() == batch.weight.item<double>());
  }
  CHECK(seen == std::vector<std::int64_t>(static_cast<std::size_t>(alphabet), 400 * 37 / alphabet));
  CHECK(targets == Approx(0.3 * 400 * 37).epsilon(0.1));
  config.train.batch_size = 7;
  config.train.seed = 6;
  const auto other = evaluation_of(*stream_of(config, std::vector<std::size_t>(400, 37)));
  REQUIRE(other.size() == batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) CHECK(torch::equal(batches[i].ids_bc, other[i].ids_bc));
}

TEST_CASE("windows are of the text, and padding behind its end is a segment of nothing", "[masking]") {
  const auto batches = evaluation_of(*stream_of(config_of(NoPackingConfig{})));
  REQUIRE(batches.size() == 1);
  const auto& batch = batches.front();
  REQUIRE(batch.ids_bc.sizes() == torch::IntArrayRef({10, context}));  // of 116 tokens
  CHECK(originals(batch).flatten().narrow(0, 0, 116).equal(torch::arange(116)));
  CHECK(batch.segments_bc.flatten().equal(torch::where(torch::arange(120) < 116, 0, -1)));
  CHECK_FALSE(batch.restarts);
  const auto training = stream_of(config_of(NoPackingConfig{}))->training_batch(0, 0, torch::kCPU);
  CHECK_FALSE(training.segments_bc.defined());  // all of it is text
  for (std::int64_t row = 0; row < 2; ++row) {
    const auto first = originals(training)[row][0].item<std::int64_t>();
    CHECK(originals(training)[row].equal(torch::arange(first, first + context)));
  }
}

TEST_CASE("windows of separate documents have these as segments", "[masking]") {
  auto config = config_of(NoPackingConfig{});
  text_data_of(config.task)->separate_documents = true;
  const auto stream = stream_of(config);
  std::vector<std::int64_t> documents;
  for (std::size_t i = 0; i < document_lengths.size(); ++i)
    documents.insert(documents.end(), document_lengths[i], static_cast<std::int64_t>(i));
  for (const auto& batch : {stream->training_batch(3, 0, torch::kCPU), evaluation_of(*stream).front()})
    for (std::int64_t row = 0; row < batch.ids_bc.size(0); ++row)
      for (std::int64_t c = 0; c < context; ++c) {
        const auto segment = batch.segments_bc[row][c].item<std::int64_t>();
        if (segment >= 0)
          CHECK(segment == documents.at(static_cast<std::size_t>(originals(batch)[row][c].item<std::int64_t>())));
      }
}

TEST_CASE("a training batch is a function of seed and step, and its rows of nothing else", "[masking]") {
  auto config = config_of(any_packing());
  config.train.batch_size = 4;
  const auto stream = stream_of(config);
  const auto whole = stream->training_batch(3, 0, torch::kCPU);
  CHECK(torch::equal(stream_of(config)->training_batch(3, 0, torch::kCPU).ids_bc, whole.ids_bc));
  CHECK_FALSE(torch::equal(stream->training_batch(4, 0, torch::kCPU).ids_bc, whole.ids_bc));
  config.train.batch_size = 2;
  config.train.accumulate = 2;
  const auto divided = stream_of(config);
  double weight = 0;
  for (std::int64_t micro = 0; micro < 2; ++micro) {
    const auto part = divided->training_batch(3, micro, torch::kCPU);
    const auto length = std::min(part.ids_bc.size(1), whole.ids_bc.size(1));
    const auto both = [&](const torch::Tensor& x_bc) { return x_bc.narrow(1, 0, length); };
    CHECK(torch::equal(both(part.ids_bc), both(whole.ids_bc.narrow(0, 2 * micro, 2))));
    CHECK(torch::equal(both(part.targets_bc), both(whole.targets_bc.narrow(0, 2 * micro, 2))));
    weight += part.weight.item<double>();
  }
  CHECK(weight == whole.weight.item<double>());
  config.train.seed = 6;
  CHECK_FALSE(torch::equal(stream_of(config)->training_batch(3, 0, torch::kCPU).ids_bc,
                           divided->training_batch(3, 0, torch::kCPU).ids_bc));
  const auto random = divided->random_batch(Split::train, 1, torch::kCPU);
  CHECK(torch::equal(divided->random_batch(Split::train, 1, torch::kCPU).ids_bc, random.ids_bc));
  CHECK_FALSE(torch::equal(divided->random_batch(Split::train, 2, torch::kCPU).ids_bc, random.ids_bc));
}

TEST_CASE("an epoch of packs has every token once, and other targets than the epoch before", "[masking][packing]") {
  const auto config =
      config_of(GENERATE(PackingConfig(ShortestFirstPackingConfig{}), PackingConfig(LeastSquaresPackingConfig{}),
                         PackingConfig(ShortestFirstPackingConfig{{.depth = 0, .separate = false}})));
  const auto stream = stream_of(config);
  const auto packs = std::llround(2 / stream->epochs_per_step());
  REQUIRE(packs > 4);
  CHECK(stream->tokens_per_step() == Approx(116.0 * 2 / static_cast<double>(packs)));
  auto twice = torch::zeros(116, torch::kLong);  // two epochs, since one may end within a step
  std::vector<torch::Tensor> targets;
  for (std::int64_t step = 0; step < packs; ++step) {
    const auto batch = stream->training_batch(step, 0, torch::kCPU);
    const auto tokens = originals(batch).masked_select(is_token(batch));
    twice.index_add_(0, tokens, torch::ones_like(tokens));
    CHECK(batch.has_own_positions() == packing_options(text_data_of(config.task)->packing)->separate);
    targets.push_back(batch.targets_bc.masked_select(batch.targets_bc >= 0));
  }
  CHECK(twice.eq(2).all().item<bool>());
  const auto all = torch::cat(targets);
  CHECK(std::get<0>(at::_unique(all)).size(0) > 50);  // of 116, of which each epoch has about 40
}

TEST_CASE("packed documents have the loss and the gradients of documents in rows of their own, for the same targets",
          "[masking][packing]") {
  const auto mixer = any_mixer();
  if (chooses_by_whole_sequence(mixer)) return does_not_apply("its chunks are made of all tokens of a row");
  const auto positions = any_positions();
  if (act_on_scores(positions) && !has_scores(mixer)) return does_not_apply("no scores");
  const bool of_sequences = GENERATE(false, true);
  CAPTURE(kind_of(mixer), kind_of(positions), of_sequences);
  auto model = model_of(mixer, positions);
  auto apart = evaluation_of(*stream_of(config_of(ShortestFirstPackingConfig{{.depth = 1}})));
  auto packed = evaluation_of(*stream_of(config_of(ShortestFirstPackingConfig{{.depth = 3}})));
  CHECK(packed.front().ids_bc.size(0) < apart.front().ids_bc.size(0));
  if (of_sequences)
    for (auto* batches : {&apart, &packed})
      for (auto& batch : *batches) batch = by_sequence(batch);
  const auto expected = mean_loss(model, apart), given = mean_loss(model, packed);
  CHECK(given.weight == expected.weight);
  CHECK(given.loss == Approx(expected.loss).epsilon(1e-10));
  CHECK((given.gradient - expected.gradient).norm().item<double>() < 1e-9 * expected.gradient.norm().item<double>());
}

TEST_CASE("a loss by sequence is the mean over windows or documents of their means", "[masking]") {
  const auto packing = any_packing();
  auto model = model_of(MetricOptions{}, LearnedPositionsConfig{});
  const auto batch = stream_of(config_of(packing, LossUnit::sequence))->training_batch(1, 0, torch::kCPU);
  auto expected = batch;
  if (!expected.segments_bc.defined()) expected.segments_bc = torch::zeros_like(batch.ids_bc);
  expected = by_sequence(expected);
  CHECK(batch.weight.item<double>() == expected.weight.item<double>());
  CHECK(torch::allclose(batch.target_weights_bc, expected.target_weights_bc));
  CHECK(mean_loss(model, {batch}).loss == Approx(mean_loss(model, {expected}).loss).epsilon(1e-6));
}

}  // namespace metaformer
