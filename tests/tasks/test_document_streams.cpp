// Documents in the batches of causal and masked language models: packed in rows, or in windows of a text.

#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <vector>

#include "config/mixer_config.h"
#include "model/token_model.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"
#include "tasks/batches.h"
#include "tasks/text_tasks.h"
#include "text/symbol_tokenizers.h"

namespace metaformer::test_document_streams {

namespace {

constexpr std::int64_t context = 12;

// Documents of these lengths, the same for training and validation. byte(i, place): the byte at i in its document.
template <class Byte>
Corpus corpus_of(const std::vector<std::size_t>& lengths, const Byte& byte) {
  Corpus corpus{.path = "documents.jsonl", .text = {}, .sha256 = {}};
  for (const auto length : lengths) {
    corpus.document_starts.push_back(corpus.text.size());
    for (std::size_t i = 0; i < length; ++i) corpus.text.push_back(static_cast<char>(byte(i, corpus.text.size())));
  }
  corpus.held_out = corpus.text;
  corpus.held_out_document_starts = corpus.document_starts;
  return corpus;
}

// 116 bytes. A document of 1 byte has no next token; one of 40 bytes has 39, in pieces of 12, 12, 12 and 3.
const std::vector<std::size_t> document_lengths = {5, 1, 13, 40, 3, 2, 8, 9, 4, 4, 12, 6, 2, 7};

constexpr std::int64_t counting = 200, mask = 256, alphabet = 20;

// A small model in float64 with random weights.
std::shared_ptr<SequenceModel> model_of(bool masks, const MixerConfig& mixer, const PositionsConfig& positions) {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = context;
  config.mixer = mixer;
  config.positions = positions;
  std::shared_ptr<SequenceModel> model = std::make_shared<Gpt>(config, alphabet);
  if (masks) model = std::make_shared<MaskedLanguageModel>(config, mask);
  model->to(torch::kDouble);
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_(0, 0.4);
  return model;
}

struct Answer {
  double loss = 0, weight = 0;
  torch::Tensor gradient;
};

// The mean loss over all batches, its weight and its gradient.
Answer mean_loss(SequenceModel& model, const std::vector<Batch>& batches) {
  model.zero_grad();
  torch::Tensor sum = torch::zeros({}, torch::kDouble), weight = torch::zeros({}, torch::kDouble);
  for (const auto& batch : batches) {
    Pass pass;
    sum = sum + token_objective()(model.forward(batch, nullptr, pass), batch);
    weight = weight + batch.weight;
  }
  const auto loss = sum / weight;
  loss.backward();
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : model.parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad().flatten());
  return {loss.item<double>(), weight.item<double>(), torch::cat(gradients)};
}

// Documents whose bytes count up over all of them.
Corpus counting_corpus(const std::vector<std::size_t>& lengths) {
  return corpus_of(lengths, [](std::size_t, std::size_t place) { return place % std::size_t{counting}; });
}

PackingConfig any_packing_or_windows() {
  return GENERATE(PackingConfig(NoPackingConfig{}), PackingConfig(ShortestFirstPackingConfig{}),
                  PackingConfig(LeastSquaresPackingConfig{}));
}

// The tokens of the text: the targets, and the inputs where there is no target.
torch::Tensor originals(const Batch& batch) {
  return torch::where(batch.targets_bc >= 0, batch.targets_bc, batch.ids_bc);
}

torch::Tensor is_token(const Batch& batch) {
  return batch.segments_bc.defined() ? batch.segments_bc >= 0 : torch::ones_like(batch.ids_bc, torch::kBool);
}

// Documents whose bytes depend on their place.
Corpus documents() {
  return corpus_of(document_lengths, [](std::size_t i, std::size_t place) { return (7 * place + i * i) % alphabet; });
}
constexpr double all_targets = 4 + 12 + 39 + 2 + 1 + 7 + 8 + 3 + 3 + 11 + 5 + 1 + 6, all_pieces = 16;

std::int64_t steps_of_epoch(const BatchStream& stream) { return std::llround(1 / stream.epochs_per_step()); }

PackingConfig any_packing() {
  return GENERATE(PackingConfig(ShortestFirstPackingConfig{}), PackingConfig(ShortestFirstPackingConfig{{.depth = 0}}),
                  PackingConfig(LeastSquaresPackingConfig{}));
}

torch::Tensor sorted(const torch::Tensor& values) { return std::get<0>(values.sort()); }

// Each token and its target as one number, sorted.
torch::Tensor sorted_pairs(const std::vector<Batch>& batches) {
  std::vector<torch::Tensor> pairs;
  for (const auto& batch : batches)
    pairs.push_back((256 * batch.ids_bc + batch.targets_bc).masked_select(batch.targets_bc >= 0));
  return sorted(torch::cat(pairs));
}

template <class TaskConfig>
ExperimentConfig config_with(TaskConfig task, const PackingConfig& packing, std::int64_t batch_size) {
  ExperimentConfig config;
  transformer(config).context = context;
  config.train.batch_size = batch_size;
  config.train.accumulate = 1;
  config.train.seed = 5;
  task.data.tokenizer = ByteTokenizerOptions{};
  task.data.validation_path = "documents.jsonl";
  task.data.packing = packing;
  config.task = task;
  return config;
}

ExperimentConfig config_of(const PackingConfig& packing, LossUnit loss = LossUnit::token) {
  return config_with(LanguageModelConfig{.loss = loss}, packing, 1);
}

ExperimentConfig masked_config_of(const PackingConfig& packing, LossUnit loss = LossUnit::token) {
  return config_with(MaskedLanguageModelConfig{.fraction = 0.3, .loss = loss}, packing, 2);
}

std::shared_ptr<const BatchStream> stream_of(const ExperimentConfig& config, const Corpus& corpus) {
  static const ByteTokenizer tokenizer;
  std::shared_ptr<const Tokenizer> made;
  const auto data = std::make_shared<TextDataset>(corpus, *text_data_of(config.task), context, made);
  return is_causal(config.task) ? make_text_stream(config, data) : make_masked_stream(config, data, tokenizer);
}

std::shared_ptr<const BatchStream> stream_of(const ExperimentConfig& config) {
  return stream_of(config, is_causal(config.task) ? documents() : counting_corpus(document_lengths));
}

std::vector<Batch> evaluation_of(const BatchStream& stream) {
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < stream.evaluation_batches(Split::validation); ++i)
    batches.push_back(stream.evaluation_batch(Split::validation, i, torch::kCPU));
  return batches;
}

std::vector<Batch> epoch_of(const BatchStream& stream) {
  std::vector<Batch> batches;
  for (std::int64_t step = 0; step < steps_of_epoch(stream); ++step)
    batches.push_back(stream.training_batch(step, 0, torch::kCPU));
  return batches;
}

std::int64_t rows_in(const std::vector<Batch>& batches) {
  std::int64_t rows = 0;
  for (const auto& batch : batches) rows += batch.ids_bc.size(0);
  return rows;
}

}  // namespace

TEST_CASE("an epoch of packs has every target of the documents once", "[packing]") {
  const auto stream = stream_of(config_of(any_packing()));
  const auto corpus = documents();
  std::vector<std::int64_t> pairs;
  for (std::size_t i = 0; i < corpus.document_starts.size(); ++i)
    for (auto at = corpus.document_starts[i]; at + 1 < corpus.document_starts[i] + document_lengths[i]; ++at)
      pairs.push_back(256 * corpus.text[at] + corpus.text[at + 1]);
  const auto expected = sorted(torch::tensor(pairs));
  const auto steps = steps_of_epoch(*stream);
  REQUIRE(std::abs(static_cast<double>(steps) * stream->epochs_per_step() - 1) < 1e-9);
  for (const std::int64_t epoch : {0, 3}) {
    std::vector<Batch> batches;
    double weight = 0;
    for (auto step = epoch * steps; step < (epoch + 1) * steps; ++step) {
      const auto& batch = batches.emplace_back(stream->training_batch(step, 0, torch::kCPU));
      CHECK(batch.ids_bc.size(1) <= context);
      CHECK(batch.has_own_positions());
      CHECK(torch::equal(batch.segments_bc >= 0, batch.targets_bc >= 0));
      weight += batch.weight.item<double>();
    }
    CHECK(weight == all_targets);
    CHECK(sorted_pairs(batches).equal(expected));
  }
  CHECK(sorted_pairs(evaluation_of(*stream)).equal(expected));
}

TEST_CASE("packed documents have the loss and gradients of documents in separate rows, with and without hidden tokens",
          "[masking][packing]") {
  const auto mixer = any_mixer();
  const auto positions = any_positions();
  if (chooses_by_whole_sequence(mixer) || (!has_scores(mixer) && act_on_scores(positions)))
    return does_not_apply("chunks are made of all tokens of a row, or no scores");
  const auto [masks, loss] =
      GENERATE(table<bool, LossUnit>({{false, LossUnit::token}, {false, LossUnit::sequence}, {true, LossUnit::token}}));
  CAPTURE(kind_of(mixer), kind_of(positions), masks, to_string(loss));
  const auto model = model_of(masks, mixer, positions);
  // Hidden tokens are tested with an evaluation, whose targets do not depend on the packs.
  const auto batches = [&, masks = masks, loss = loss](std::int64_t depth) {
    const PackingConfig packing = ShortestFirstPackingConfig{{.depth = depth}};
    return masks ? evaluation_of(*stream_of(masked_config_of(packing)))
                 : epoch_of(*stream_of(config_of(packing, loss)));
  };
  const auto apart = batches(1), packed = batches(3);
  CHECK(rows_in(packed) < rows_in(apart));
  const auto expected = mean_loss(*model, apart), given = mean_loss(*model, packed);
  CHECK(given.weight == expected.weight);
  if (!masks) CHECK(given.weight == (loss == LossUnit::sequence ? all_pieces : all_targets));
  CHECK(given.loss == Approx(expected.loss).epsilon(1e-10));
  CHECK((given.gradient - expected.gradient).norm().item<double>() < 1e-9 * expected.gradient.norm().item<double>());
}

TEST_CASE("a loss by sequence is the mean over windows or documents of their mean losses", "[masking][packing]") {
  const auto config = GENERATE(config_of(ShortestFirstPackingConfig{}, LossUnit::sequence),
                               masked_config_of(NoPackingConfig{}, LossUnit::sequence),
                               masked_config_of(ShortestFirstPackingConfig{}, LossUnit::sequence),
                               masked_config_of(LeastSquaresPackingConfig{}, LossUnit::sequence));
  const auto model = model_of(!is_causal(config.task), MetricOptions{}, LearnedPositionsConfig{});
  const auto stream = stream_of(config);
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto batch = stream->training_batch(step, 0, torch::kCPU);
    auto whole = batch;
    whole.places_t = torch::Tensor();
    if (!whole.segments_bc.defined()) whole.segments_bc = torch::zeros_like(batch.ids_bc);
    Pass pass;
    const auto logits_bcv = model->forward(whole, nullptr, pass);
    double sum = 0, sequences = 0;
    for (std::int64_t row = 0; row < batch.ids_bc.size(0); ++row)
      for (std::int64_t segment = 0; segment <= whole.segments_bc[row].max().item<std::int64_t>(); ++segment) {
        const auto own_c = (whole.segments_bc[row] == segment) & (batch.targets_bc[row] >= 0);
        sum +=
            torch::nn::functional::cross_entropy(logits_bcv[row].index({own_c}), batch.targets_bc[row].index({own_c}))
                .item<double>();
        ++sequences;
      }
    CHECK(batch.weight.item<double>() == sequences);
    CHECK(mean_loss(*model, {batch}).loss == Approx(sum / sequences).epsilon(1e-6));
  }
}

TEST_CASE("in joined packs documents see earlier ones, and in an evaluation each document is separate", "[packing]") {
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

TEST_CASE("an evaluation has every token of the split once, in batches of any size", "[masking]") {
  auto config = masked_config_of(any_packing_or_windows());
  const auto corpus = counting_corpus(std::vector<std::size_t>(400, 37));
  const auto batches = evaluation_of(*stream_of(config, corpus));
  CHECK(batches.size() > 1);
  std::vector<torch::Tensor> seen;
  double targets = 0;
  for (const auto& batch : batches) {
    seen.push_back(originals(batch).masked_select(is_token(batch)));
    targets += batch.weight.item<double>();
    CHECK(batch.weight.item<double>() == (batch.targets_bc >= 0).sum().item<double>());
    CHECK((batch.targets_bc < 0).logical_or(is_token(batch)).all().item<bool>());
    CHECK(wanted_targets_t(batch).ge(0).sum().item<double>() == batch.weight.item<double>());
  }
  CHECK(torch::bincount(torch::cat(seen)).equal(torch::full({counting}, 400 * 37 / counting, torch::kLong)));
  CHECK(targets == Approx(0.3 * 400 * 37).epsilon(0.1));
  config.train.batch_size = 7;
  config.train.seed = 6;
  const auto other = evaluation_of(*stream_of(config, corpus));
  REQUIRE(other.size() == batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) CHECK(torch::equal(batches[i].ids_bc, other[i].ids_bc));
}

TEST_CASE("windows are parts of the text, and padding after its end has segment -1", "[masking]") {
  const auto batches = evaluation_of(*stream_of(masked_config_of(NoPackingConfig{})));
  REQUIRE(batches.size() == 1);
  const auto& batch = batches.front();
  REQUIRE(batch.ids_bc.sizes() == torch::IntArrayRef({10, context}));  // for 116 tokens
  CHECK(originals(batch).flatten().narrow(0, 0, 116).equal(torch::arange(116)));
  CHECK(batch.segments_bc.flatten().equal(torch::where(torch::arange(120) < 116, 0, -1)));
  CHECK_FALSE(batch.restarts);
  const auto training = stream_of(masked_config_of(NoPackingConfig{}))->training_batch(0, 0, torch::kCPU);
  CHECK_FALSE(training.segments_bc.defined());  // no padding
  for (std::int64_t row = 0; row < 2; ++row) {
    const auto first = originals(training)[row][0].item<std::int64_t>();
    CHECK(originals(training)[row].equal(torch::arange(first, first + context)));
  }
}

TEST_CASE("if documents are separate, they are the segments of windows", "[masking]") {
  auto config = masked_config_of(NoPackingConfig{});
  text_data_of(config.task)->separate_documents = true;
  const auto stream = stream_of(config);
  std::vector<std::int64_t> documents;
  for (std::size_t i = 0; i < document_lengths.size(); ++i)
    documents.insert(documents.end(), document_lengths[i], static_cast<std::int64_t>(i));
  for (const auto& batch : {stream->training_batch(3, 0, torch::kCPU), evaluation_of(*stream).front()}) {
    const auto tokens = originals(batch).masked_select(is_token(batch));
    CHECK(batch.segments_bc.masked_select(is_token(batch)).equal(torch::tensor(documents).index({tokens})));
  }
}

TEST_CASE("a training batch depends only on seed and step, and its rows not on the division of the step",
          "[masking][packing]") {
  auto config = GENERATE(masked_config_of(NoPackingConfig{}), masked_config_of(ShortestFirstPackingConfig{}),
                         masked_config_of(LeastSquaresPackingConfig{}), config_of(ShortestFirstPackingConfig{}),
                         config_of(ShortestFirstPackingConfig{{.depth = 0}}), config_of(LeastSquaresPackingConfig{}));
  const auto ids = [](const BatchStream& of, std::int64_t step) {
    return of.training_batch(step, 0, torch::kCPU).ids_bc;
  };
  config.train.batch_size = 4;
  const auto stream = stream_of(config);
  const auto whole = stream->training_batch(3, 0, torch::kCPU);
  CHECK(torch::equal(ids(*stream_of(config), 3), whole.ids_bc));
  CHECK_FALSE(torch::equal(ids(*stream, 4), whole.ids_bc));
  CHECK(torch::equal(ids(*stream, 3), whole.ids_bc));
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
  int same = 0;
  for (std::int64_t step = 0; step < 5; ++step)
    same += torch::equal(ids(*stream_of(config), step), ids(*divided, step));
  CHECK(same < 5);
  const auto random = divided->random_batch(Split::train, 1, torch::kCPU);
  CHECK(torch::equal(divided->random_batch(Split::train, 1, torch::kCPU).ids_bc, random.ids_bc));
  CHECK_FALSE(torch::equal(divided->random_batch(Split::train, 2, torch::kCPU).ids_bc, random.ids_bc));
}

TEST_CASE("an epoch of packs has every token once, and targets differ between epochs", "[masking][packing]") {
  const auto config =
      masked_config_of(GENERATE(PackingConfig(ShortestFirstPackingConfig{}), PackingConfig(LeastSquaresPackingConfig{}),
                                PackingConfig(ShortestFirstPackingConfig{{.depth = 0, .separate = false}})));
  const auto stream = stream_of(config);
  const auto packs = std::llround(2 / stream->epochs_per_step());
  REQUIRE(packs > 4);
  CHECK(stream->tokens_per_step() == Approx(116.0 * 2 / static_cast<double>(packs)));
  auto twice = torch::zeros(116, torch::kLong);  // two epochs, because one may end within a step
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
  CHECK(std::get<0>(at::_unique(all)).size(0) > 50);  // of 116; one epoch has about 40
}

}  // namespace metaformer::test_document_streams
