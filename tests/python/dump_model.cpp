// Writes a model with random weights, a batch, and the model's outputs, for comparison with independent code.
//
//   dump_model FOLDER [float64|exported|training] [KEY=VALUE ...] [-- FOLDER ...] ...     overrides of the defaults
//   dump_model FOLDER pretrained SOURCE IDS
//
// Each FOLDER gets config.json, model.safetensors and expected.safetensors: ids, targets (for a classifier labels and
// segments, with padding; for a masked language model also their places; for an encoder and decoder also source and its
// segments), logits, loss, grad.NAME. float64: the model computes in float64, with the weights of float32. exported:
// there is also the folder `exported`, an export for the library `transformers`.
//
// training: FOLDER gets the initial weights (model.safetensors) and training.safetensors instead: ids and targets
// [steps, b, c] of a training, losses [steps], final.NAME.
//
// pretrained: FOLDER gets logits.safetensors of the Hugging Face folder SOURCE for the tensor ids [b, c] of the file
// IDS, and the folder `exported`, an export of the same model. Fails if reading it gives another model.

#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/files.h"
#include "config/loader.h"
#include "config/writer.h"
#include "model/make_model.h"
#include "ops/named_tensors.h"
#include "run/huggingface/model_folder.h"
#include "run/safetensors.h"
#include "tasks/make_task.h"
#include "text/symbol_tokenizers.h"
#include "train/optim/learning_rate.h"
#include "train/step.h"

namespace metaformer {

static Batch token_batch(std::int64_t vocabulary, std::int64_t context) {
  const auto draw = [&] { return torch::randint(vocabulary, {3, context}, torch::kLong); };
  return {.ids_bc = draw(), .targets_bc = draw()};
}

// A batch with documents and padding; some of the tokens are targets.
static Batch masked_batch(std::int64_t vocabulary, std::int64_t context) {
  const auto place_c = torch::arange(context);
  const auto segments_bc = torch::stack({torch::where(place_c < context / 3, 0, 1), torch::where(place_c < 4, 2, -1)});
  Batch batch{.ids_bc = torch::randint(vocabulary + 1, {2, context}, torch::kLong),
              .targets_bc = torch::randint(vocabulary, {2, context}, torch::kLong),
              .segments_bc = segments_bc};
  batch.places_t = torch::tensor({std::int64_t{0}, std::int64_t{3}, context / 3, context - 1, context + 2});
  return batch;
}

// Segment 0 up to each length, then padding (-1).
static torch::Tensor segments_of(const std::vector<std::int64_t>& lengths, std::int64_t context) {
  return -(torch::arange(context).unsqueeze(0) >= torch::tensor(lengths).unsqueeze(1)).to(torch::kLong);
}

static Batch ragged_batch(std::int64_t vocabulary, std::int64_t classes, std::int64_t context) {
  return {.ids_bc = torch::randint(vocabulary, {4, context}, torch::kLong),
          .segments_bc = segments_of({context, 1, context / 2, context - 1}, context),
          .labels_l = torch::randint(classes, {4}, torch::kLong)};
}

// Sources and targets, both with padding. The vocabulary has one additional mark.
static Batch pair_batch(std::int64_t vocabulary, std::int64_t context) {
  const auto draw = [&] { return torch::randint(vocabulary + 1, {3, context}, torch::kLong); };
  Batch batch{.ids_bc = draw(), .targets_bc = draw(), .segments_bc = segments_of({context, context - 2, 1}, context)};
  batch.targets_bc = batch.targets_bc.masked_fill(batch.segments_bc < 0, -1);
  batch.source_ids_bs = draw();
  batch.source_segments_bs = segments_of({2, context, context - 1}, context);
  return batch;
}

static Batch batch_for(const ExperimentConfig& config, std::int64_t vocabulary, std::int64_t classes) {
  const auto context = context_of(config.model);
  if (is<ClassificationConfig>(config.task)) return ragged_batch(vocabulary, classes, context);
  if (is<SequenceToSequenceConfig>(config.task)) return pair_batch(vocabulary, context);
  return is_causal(config.task) ? token_batch(vocabulary, context) : masked_batch(vocabulary, context);
}

static void dump(const std::filesystem::path& folder, const std::string& mode,
                 const std::vector<std::string>& overrides) {
  std::filesystem::create_directories(folder);
  const auto config = default_experiment(overrides).config;
  constexpr std::int64_t vocabulary = 23, classes = 4;
  torch::manual_seed(11);
  const auto model = make_model(config, {.vocabulary = vocabulary, .classes = classes});
  {
    // Values near the initial ones (norms and score forms near ones and identities), but not equal to them, so that
    // every parameter matters. Biases as large as one would make gradients of the forms differences of large numbers,
    // whose error is the rounding of float32.
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->named_parameters()) {
      auto& value = parameter.value();
      if (value.dim() == 2 && parameter.key().ends_with(".weight")) value.normal_(0, 0.02);
      if (parameter.key().ends_with(".bias")) value.zero_();
      value.add_(0.1 * torch::randn_like(value));
    }
    for (auto& buffer : model->named_buffers())
      if (buffer.key() == "bag.scale") buffer.value().uniform_(0.5, 1.5);
  }
  if (mode == "float64") model->to(torch::kDouble);
  const auto batch = batch_for(config, vocabulary, classes);
  const auto logits = model->evaluate(batch);
  const auto targets = is<ClassificationConfig>(config.task) ? batch.labels_l : wanted_targets_t(batch);
  const auto loss = torch::nn::functional::cross_entropy(
      logits.flatten(0, -2), targets, torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-1));
  loss.backward();
  NamedTensors expected = {{"ids", batch.ids_bc}, {"targets", targets}, {"logits", logits}, {"loss", loss}};
  for (const auto& [name, tensor] : NamedTensors{{"places", batch.places_t},
                                                 {"segments", batch.segments_bc},
                                                 {"source", batch.source_ids_bs},
                                                 {"source_segments", batch.source_segments_bs}})
    if (tensor.defined()) expected.emplace_back(name, tensor);
  for (const auto& parameter : model->named_parameters())
    if (const auto& value = parameter.value(); value.requires_grad())
      expected.emplace_back("grad." + parameter.key(),
                            value.grad().defined() ? value.grad().to_dense() : torch::zeros_like(value));
  write_file_synced(folder / "config.json", config_to_json(config).dump(2));
  write_file_synced(folder / "model.safetensors", to_safetensors(named_state(*model)));
  write_file_synced(folder / "expected.safetensors", to_safetensors(expected));
  if (mode != "exported") return;
  const Codec codec{.tokenizer = std::make_unique<NumberTokenizer>(vocabulary), .labels = {}};
  export_model({.config = config, .tensors = named_state(*model), .codec = codec}, ExportFormat::huggingface,
               folder / "exported");
}

// Trains as `metaformer train` does.
static void dump_training(const std::filesystem::path& folder, const std::vector<std::string>& overrides) {
  const auto config = default_experiment(overrides).config;
  const auto task = make_task(config, /*offline=*/true);
  Step trained(config, task, torch::kCPU);
  const auto& model = *trained.model;
  write_file_synced(folder / "config.json", config_to_json(config).dump(2));
  write_file_synced(folder / "model.safetensors", to_safetensors(named_state(model)));

  std::vector<torch::Tensor> ids, targets, losses;
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    const auto batch = task.batches->training_batch(step, 0, torch::kCPU);  // a function of (seed, step)
    ids.push_back(batch.ids_bc);
    targets.push_back(batch.targets_bc);
    losses.push_back(
        trained.run(step, scheduled_rate(config.train, width_of(config.model), step)).loss.to(torch::kDouble));
  }
  NamedTensors training = {
      {"ids", torch::stack(ids)}, {"targets", torch::stack(targets)}, {"losses", torch::stack(losses)}};
  for (const auto& [name, value] : named_state(model)) training.emplace_back("final." + name, value);
  write_file_synced(folder / "training.safetensors", to_safetensors(training));
}

static void dump_pretrained(const std::filesystem::path& out, const std::string& source, const std::string& ids_file) {
  auto read = read_huggingface(source);
  const ExperimentConfig config{.model = read.config};
  const auto model = make_model(config, {.vocabulary = read.vocabulary});
  copy_by_name(read.tensors, named_state(*model), source);
  const auto ids = from_safetensors(read_file(ids_file, 1 << 30, ExitCode::data), ids_file);
  const torch::NoGradGuard no_grad;
  std::filesystem::create_directories(out);
  write_file_synced(out / "logits.safetensors",
                    to_safetensors({{"logits", model->evaluate({.ids_bc = ids.at(0).second})}}));
  const bool has_tokenizer = read.tokenizer != nullptr;
  const Codec codec{
      .tokenizer = has_tokenizer ? std::move(read.tokenizer) : std::make_unique<NumberTokenizer>(read.vocabulary),
      .labels = {}};
  export_model({.config = config, .tensors = read.tensors, .codec = codec}, ExportFormat::huggingface,
               out / "exported");
  const auto again = read_huggingface(out / "exported");
  if (has_tokenizer && again.tokenizer->to_json() != codec.tokenizer->to_json())
    throw Error(ExitCode::failure, "the tokenizer does not read back as it was");
  if (to_safetensors(read.tensors) != to_safetensors(again.tensors) || read.vocabulary != again.vocabulary ||
      config_to_json({.model = read.config}) != config_to_json({.model = again.config}))
    throw Error(ExitCode::failure, "what was exported does not read back as it was");
}

}  // namespace metaformer

int main(int argc, char** argv) {
  using namespace metaformer;
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    for (auto begin = words.begin(); begin != words.end();) {
      const auto end = std::find(begin, words.end(), "--");
      const auto folder = *begin++;
      const auto mode = begin != end && begin->find('=') == std::string::npos ? *begin++ : "";
      if (mode == "pretrained")
        dump_pretrained(folder, begin[0], begin[1]);
      else if (mode == "training")
        dump_training(folder, {begin, end});
      else
        dump(folder, mode, {begin, end});
      begin = end == words.end() ? end : end + 1;
    }
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
