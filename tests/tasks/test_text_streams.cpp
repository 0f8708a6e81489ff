// The batches of a language model: windows at random places, or with model.memory the text in order.

#include <set>

#include "base/error.h"
#include "support/failure.h"
#include "support/torch_catch.h"
#include "tasks/text_streams.h"

namespace metaformer {

namespace {

// Bytes that count up, so that a token is its place (modulo 127).
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

TEST_CASE("with memory a row goes on where it ended, and an epoch has every row's part of the text", "[streams]") {
  // 500 training tokens, 499 targets: 6 rows of 10 windows of 8 tokens; 19 targets are left over.
  const auto stream = stream_of(GENERATE(false, true) ? recurrent_config() : config_of(8), text_of(1000));
  CHECK(stream->epochs_per_step() == 0.1);
  std::set<std::int64_t> offsets;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::int64_t> next(6, -1);
    for (std::int64_t step = 10 * epoch; step < 10 * (epoch + 1); ++step)
      for (std::int64_t micro = 0; micro < 2; ++micro) {
        const auto batch = stream->training_batch(step, micro, torch::kCPU);
        CHECK(batch.begins == (step % 10 == 0));
        CHECK(batch.weight.item<double>() == 24);
        for (std::int64_t row = 0; row < 3; ++row) {
          const auto first = batch.ids_bc[row][0].item<std::int64_t>();
          auto& expected = next[static_cast<std::size_t>(3 * micro + row)];
          if (step % 10 != 0) CHECK(first == expected % 127);
          expected = first + 8;
          for (std::int64_t c = 0; c < 8; ++c) {
            CHECK(batch.ids_bc[row][c].item<std::int64_t>() == (first + c) % 127);
            CHECK(batch.targets_bc[row][c].item<std::int64_t>() == (first + c + 1) % 127);
          }
        }
      }
    const auto begin = stream->training_batch(10 * epoch, 0, torch::kCPU);
    const auto offset = begin.ids_bc[0][0].item<std::int64_t>();
    CHECK(offset <= 19);
    CHECK(begin.ids_bc[1][0].item<std::int64_t>() == offset + 80);  // rows lie side by side
    offsets.insert(offset);
  }
  CHECK(offsets.size() > 1);  // what is left over is not the same in every epoch
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
      if (batch.targets_bc[index][0].item<std::int64_t>() < 0) continue;  // behind the end
      if (i > 0) CHECK(batch.ids_bc[index][0].item<std::int64_t>() == last[row]);
      last[row] = batch.targets_bc[index][7].item<std::int64_t>();
    }
  }
  CHECK(targets == static_cast<double>(tokens - 1));
}

TEST_CASE("a text too short for the rows of a step is an error that says so", "[streams]") {
  const auto [code, message] = failure([] { stream_of(config_of(8), text_of(80))->check_training(); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("40 tokens") && ContainsSubstring("at least 49"));
  CHECK_THAT(message, ContainsSubstring("with model.memory "));
  CHECK_THAT(failure([] { stream_of(recurrent_config(), text_of(80))->check_training(); }).second,
             ContainsSubstring("with model.carry_state "));
  CHECK_NOTHROW(stream_of(config_of(0), text_of(80))->check_training());
  CHECK_NOTHROW(stream_of(config_of(8), text_of(80)));  // to evaluate with
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
  const auto expected = [](std::int64_t place) { return place < 30 ? 0 : place < 100 ? 1 : 2; };
  for (std::int64_t step = 0; step < 2; ++step) {
    const auto batch = stream->training_batch(step, 0, torch::kCPU);
    for (std::int64_t row = 0; row < 3; ++row)
      for (std::int64_t c = 0; c < 8; ++c)
        CHECK(batch.segments_bc[row][c].item<std::int64_t>() == expected(batch.ids_bc[row][c].item<std::int64_t>()));
  }
  const auto validation = stream->evaluation_batch(Split::validation, 0, torch::kCPU);
  CHECK(torch::equal(validation.segments_bc, torch::where(validation.targets_bc >= 0, 0, -1)));
  CHECK(dataset->documents(Split::validation) == std::vector<std::int32_t>(120, 0));  // the rest of the third document
}

}  // namespace metaformer
