// Batches on the device, and batches of language models: windows at random places, or the text in order with
// model.memory.

#include <set>

#include "data/text_dataset.h"
#include "support/failure.h"
#include "support/workplace.h"
#include "tasks/batches.h"
#include "tasks/text_tasks.h"

namespace metaformer::test_text_streams {

namespace {

// Bytes that count up, so that a token is its place modulo 127.
std::string counting(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i % 127);
  return text;
}

ExperimentConfig config_of(std::int64_t memory) {
  ExperimentConfig config;
  auto& model = transformer(config);
  model.context = 8;
  model.memory = memory;
  config.train.batch_size = 3;
  config.train.accumulate = 2;
  config.train.seed = 5;
  LanguageModelConfig task;
  task.data.tokenizer = ByteTokenizerOptions{};
  task.data.validation_fraction = 0.5;
  config.task = task;
  return config;
}

// The same with a recurrent model that carries its state.
ExperimentConfig recurrent_config() {
  auto config = config_of(0);
  LstmConfig model;
  model.context = 8;
  model.carry_state = true;
  config.model = model;
  return config;
}

std::shared_ptr<const TextDataset> dataset_of(const ExperimentConfig& config, const Corpus& corpus) {
  std::shared_ptr<const Tokenizer> made;
  return std::make_shared<TextDataset>(corpus, language_model(config).data, context_of(config.model), made);
}

std::shared_ptr<const BatchStream> stream_of(const ExperimentConfig& config, const Corpus& corpus) {
  return make_text_stream(config, dataset_of(config, corpus));
}

Corpus text_of(std::size_t bytes) { return {.path = "memory.txt", .text = counting(bytes), .sha256 = {}}; }

}  // namespace

TEST_CASE(
    "a batch with padding grows to a multiple of 8 tokens, at most to the context, and one without padding does not",
    "[batch]") {
  const auto [length, context, expected] =
      GENERATE(table<std::int64_t, std::int64_t, std::int64_t>({{5, 20, 8}, {8, 20, 8}, {9, 20, 16}, {17, 20, 20}}));
  LabelledRows rows{.rows = 2, .length = length, .labels = {1, 0}};
  rows.ids.assign(2 * length, 7);
  rows.segments.assign(2 * length, 0);
  rows.segments.back() = -1;
  const auto even = LabelledRows{.rows = 2, .length = length, .ids = rows.ids, .labels = rows.labels};
  CHECK(to_batch(even, torch::kCPU, context).ids_bc.size(1) == length);
  const auto batch = to_batch(rows, torch::kCPU, context);
  CHECK(batch.ids_bc.sizes() == torch::IntArrayRef({2, expected}));
  CHECK((batch.ids_bc.narrow(1, 0, length) == 7).all().item<bool>());
  CHECK(batch.segments_bc.sizes() == batch.ids_bc.sizes());
  CHECK((batch.segments_bc >= 0).sum(1).equal(torch::tensor({length, length - 1})));
  CHECK(batch.labels_l.equal(torch::tensor({1L, 0L})));
}

TEST_CASE("a language model's batches are the dataset's windows", "[batches]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  const auto& config = parts.experiment.config;
  const auto corpus = load_corpus(language_model(config).data, true);
  std::shared_ptr<const Tokenizer> tokenizer;
  const TextDataset dataset(corpus, language_model(config).data, context_of(config.model), tokenizer);
  const auto expected = to_batch(dataset.random_windows(Split::train, static_cast<std::uint64_t>(config.train.seed),
                                                        RandomPurpose::batches, 4, 6, 6),
                                 torch::kCPU);
  const auto given = parts.task.batches->training_batch(4, 1, torch::kCPU);
  CHECK(torch::equal(given.ids_bc, expected.ids_bc));
  CHECK(torch::equal(given.targets_bc, expected.targets_bc));
  CHECK(torch::equal(given.weight, expected.weight));
  CHECK((given.weight.dim() == 0 && given.weight.scalar_type() == torch::kDouble));
  CHECK(given.weight.item<double>() == 6 * 16);
}

TEST_CASE("the beginning of a batch has the first tokens of its first rows, and the weight of their targets",
          "[batches]") {
  Batch batch;
  batch.ids_bc = torch::arange(15).view({3, 5});
  batch.targets_bc = torch::tensor({{1, 2, 3, 4, 5}, {-1, 7, -1, 9, 10}, {11, 12, 13, 14, 15}}, torch::kLong);
  batch.weight = torch::tensor(13.0, torch::kDouble);
  const auto part = beginning_of(batch, 2, 3);
  CHECK(part.ids_bc.equal(torch::tensor({{0, 1, 2}, {5, 6, 7}}, torch::kLong)));
  CHECK(part.weight.item<double>() == 4);
  CHECK(beginning_of(batch, 3).ids_bc.equal(batch.ids_bc));
  batch.places_t = torch::tensor({1, 4, 6, 8, 12, -1}, torch::kLong);
  const auto places = beginning_of(batch, 2, 3).places_t;
  CHECK(places.masked_select(places >= 0).equal(torch::tensor({1, 4}, torch::kLong)));  // in rows of three tokens
  CHECK(beginning_of(batch, 2, 3).weight.item<double>() == 2);
}

TEST_CASE("with memory a row continues where it ended, and an epoch contains every row's part of the text",
          "[streams]") {
  // 500 training tokens with 499 targets give 6 rows of 10 windows of 8 tokens; 19 targets are left over.
  const auto stream = stream_of(GENERATE(false, true) ? recurrent_config() : config_of(8), text_of(1000));
  CHECK(stream->epochs_per_step() == 0.1);
  std::set<std::int64_t> offsets;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    const auto begin = stream->training_batch(10 * epoch, 0, torch::kCPU);
    const auto offset = begin.ids_bc[0][0].item<std::int64_t>();
    CHECK(offset <= 19);
    offsets.insert(offset);
    for (std::int64_t place = 0; place < 10; ++place)
      for (std::int64_t micro = 0; micro < 2; ++micro) {
        const auto batch = stream->training_batch(10 * epoch + place, micro, torch::kCPU);
        CHECK(batch.begins == (place == 0));
        CHECK(batch.weight.item<double>() == 24);
        // Rows of 80 tokens follow each other in the text.
        const auto rows_b1 = (torch::arange(3) + 3 * micro).unsqueeze(1);
        const auto places_bc = offset + 80 * rows_b1 + 8 * place + torch::arange(8);
        CHECK(batch.ids_bc.equal(places_bc % 127));
        CHECK(batch.targets_bc.equal((places_bc + 1) % 127));
      }
  }
  CHECK(offsets.size() > 1);  // the targets that are left over differ between epochs
}

TEST_CASE("with memory an evaluation reads every target once, each row in order", "[streams]") {
  const auto bytes = GENERATE(std::size_t{1000}, std::size_t{1003}, std::size_t{4000}, std::size_t{200});
  const auto config = GENERATE(config_of(8), config_of(20), recurrent_config());
  const auto stream = stream_of(config, text_of(bytes));
  const auto tokens = static_cast<std::int64_t>(bytes) - static_cast<std::int64_t>(bytes) / 2;
  std::vector<std::int64_t> last;
  double targets = 0;
  for (std::int64_t i = 0; i < stream->evaluation_batches(Split::validation); ++i) {
    const auto batch = stream->evaluation_batch(Split::validation, i, torch::kCPU);
    CHECK(batch.begins == (i == 0));
    CHECK(batch.weight.item<double>() == (batch.targets_bc >= 0).sum().item<double>());
    targets += batch.weight.item<double>();
    if (i == 0) last.assign(static_cast<std::size_t>(batch.ids_bc.size(0)), -1);
    REQUIRE(batch.ids_bc.size(0) == std::ssize(last));
    for (std::size_t row = 0; row < last.size(); ++row) {
      const auto index = static_cast<std::int64_t>(row);
      if (batch.targets_bc[index][0].item<std::int64_t>() < 0) continue;  // after the end
      if (i > 0) CHECK(batch.ids_bc[index][0].item<std::int64_t>() == last[row]);
      last[row] = batch.targets_bc[index][7].item<std::int64_t>();
    }
  }
  CHECK(targets == static_cast<double>(tokens - 1));
}

TEST_CASE("a text that is too short for the rows of a step is an error with the needed length", "[streams]") {
  const auto [code, message] = failure([] { stream_of(config_of(8), text_of(80))->check_training(); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("40 tokens") && ContainsSubstring("at least 49"));
  CHECK_THAT(message, ContainsSubstring("with model.memory "));
  CHECK_THAT(failure([] { stream_of(recurrent_config(), text_of(80))->check_training(); }).second,
             ContainsSubstring("with model.carry_state "));
  CHECK_NOTHROW(stream_of(config_of(0), text_of(80))->check_training());
  CHECK_NOTHROW(stream_of(config_of(8), text_of(80)));  // sufficient for an evaluation
  CHECK_THROWS_WITH(stream_of(config_of(8), text_of(1000))->random_batch(Split::train, 0, torch::kCPU),
                    ContainsSubstring("evaluate the whole split"));
}

TEST_CASE("separate documents are segments, with and without memory", "[streams]") {
  auto config = config_of(GENERATE(0, 8));
  std::get<LanguageModelConfig>(config.task).data.separate_documents = true;
  // Documents of 30, 70 and 140 bytes; the second half of the text, from byte 120 on, is for validation.
  auto corpus = text_of(240);
  corpus.document_starts = {0, 30, 100};
  const auto dataset = dataset_of(config, corpus);
  const auto stream = make_text_stream(config, dataset);
  for (std::int64_t step = 0; step < 2; ++step) {
    const auto batch = stream->training_batch(step, 0, torch::kCPU);
    CHECK(batch.segments_bc.equal((batch.ids_bc >= 30).to(torch::kLong) + (batch.ids_bc >= 100)));
  }
  const auto validation = stream->evaluation_batch(Split::validation, 0, torch::kCPU);
  CHECK(torch::equal(validation.segments_bc, torch::where(validation.targets_bc >= 0, 0, -1)));
  CHECK(dataset->documents(Split::validation, 0, 120) ==
        std::vector<std::int32_t>(120, 0));  // the rest of the third document
}

}  // namespace metaformer::test_text_streams
