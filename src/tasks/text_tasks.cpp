#include "tasks/text_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "data/masking.h"
#include "tasks/batches.h"

namespace metaformer {

namespace {

const PackingConfig& packing_of(const ExperimentConfig& config) { return text_data_of(config.task)->packing; }

// The common base of the batches of all tasks over a text.
class TextStream : public RowStream {
 public:
  TextStream(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset)
      : RowStream(config.train, context_of(config.model)), config_(config), dataset_(std::move(dataset)) {}

  double tokens_per_step() const override { return static_cast<double>(rows_per_step() * context()); }
  double epochs_per_step() const override { return tokens_per_step() / static_cast<double>(size(Split::train)); }

 protected:
  const ExperimentConfig& config() const { return config_; }
  const TextDataset& dataset() const { return *dataset_; }
  std::int64_t context() const { return row_length(); }
  std::int64_t size(Split split) const { return std::ssize(dataset_->tokens(split)); }

 private:
  ExperimentConfig config_;
  std::shared_ptr<const TextDataset> dataset_;
};

// Windows at random places; those of the training split are cut on the device.
class Windows : public TextStream {
 public:
  using TextStream::TextStream;

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto starts =
        dataset().random_starts(Split::train, seed(), RandomPurpose::batches, step, micro * rows(), rows());
    return cut(starts, device);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    return to_batch(dataset().random_windows(split, seed(), RandomPurpose::evaluation, index, 0, rows()), device);
  }

 protected:
  std::int64_t count(Split split) const override { return dataset().consecutive_window_count(split); }

  Batch cut(const std::vector<std::int64_t>& starts, torch::Device device) const {
    if (!training_tokens_.defined() || training_tokens_.device() != device) {
      const auto on_device = [&](const std::vector<std::int32_t>& numbers) {
        return torch::from_blob(const_cast<std::int32_t*>(numbers.data()), {std::ssize(numbers)}, torch::kInt)
            .to(device);
      };
      training_tokens_ = on_device(dataset().tokens(Split::train));
      if (const auto& documents = dataset().documents(Split::train); !documents.empty())
        training_documents_ = on_device(documents);
    }
    return cut_windows(training_tokens_, starts, context(), training_documents_);
  }

 private:
  Batch batch_of(Split split, std::int64_t first, std::int64_t rows, torch::Device device) const override {
    return to_batch(dataset().consecutive_windows(split, first, rows), device);
  }
  std::int64_t tokens_of(Split split, std::int64_t first, std::int64_t rows) const override {
    return std::min(rows * context(), size(split) - 1 - first * context());
  }

  // int, on the device of the last batch; on the CPU the dataset's own memory
  mutable torch::Tensor training_tokens_, training_documents_;
};

// Windows in the order of the text (Dai et al. 2019). The text is cut into parts of equal length, one for each row of a
// step, and a row continues in its part from step to step. The remainder, fewer tokens than a step has, is before and
// after these parts, divided differently in every epoch.
class OrderedWindows : public Windows {
 public:
  OrderedWindows(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset)
      : Windows(config, std::move(dataset)), steps_of_epoch_(targets() / (rows_per_step() * context())) {}

  // Not in the constructor, because evaluation alone needs no rows of a step.
  void check_training() const override {
    if (steps_of_epoch_ > 0) return;
    throw Error(
        ExitCode::data,
        fmt::format("the training split has {} tokens; with {} train.batch_size {} and train.accumulate {} make "
                    "{} rows, which model.context {} cuts out of at least {}",
                    targets() + 1, order_key(config().model), rows(), config().train.accumulate, rows_per_step(),
                    context(), rows_per_step() * context() + 1));
  }

  double epochs_per_step() const override { return 1 / static_cast<double>(steps_of_epoch_); }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    check_training();
    const auto epoch = step / steps_of_epoch_, place = step % steps_of_epoch_;
    const auto left_over = targets() - steps_of_epoch_ * rows_per_step() * context();
    const Rng rng(seed(), RandomPurpose::batches, static_cast<std::uint64_t>(epoch));
    const auto first = static_cast<std::int64_t>(rng.below(0, static_cast<std::uint64_t>(left_over) + 1));
    std::vector<std::int64_t> starts;
    for (auto row = micro * rows(); row < (micro + 1) * rows(); ++row)
      starts.push_back(first + (row * steps_of_epoch_ + place) * context());
    auto batch = cut(starts, device);
    batch.begins = place == 0;
    return batch;
  }

  std::int64_t evaluation_batches(Split split) const override { return windows_of_row(split); }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    auto batch = to_batch(dataset().windows(split, evaluation_starts(split, index)), device);
    batch.begins = index == 0;
    return batch;
  }

  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override {
    std::int64_t tokens = 0;
    for (const auto start : evaluation_starts(split, index))
      tokens += std::clamp<std::int64_t>(size(split) - 1 - start, 0, context());
    return tokens;
  }

  Batch random_batch(Split, std::int64_t, torch::Device) const override {
    throw Error(ExitCode::usage, fmt::format("random batches have nothing before them for {} to go on from: evaluate "
                                             "the whole split",
                                             order_key(config().model)));
  }

 private:
  std::int64_t targets() const { return size(Split::train) - 1; }

  // Every row is a part of the split, and begins without memory.
  std::vector<std::int64_t> evaluation_starts(Split split, std::int64_t index) const {
    const auto windows = count(split), of_row = windows_of_row(split);
    std::vector<std::int64_t> starts;
    for (std::int64_t row = 0; row < (windows + of_row - 1) / of_row; ++row)
      starts.push_back((row * of_row + index) * context());
    return starts;
  }

  // Rows are long compared to the memory, so that only a small part of the split is predicted with less than a full
  // memory.
  std::int64_t windows_of_row(Split split) const {
    constexpr std::int64_t memories = 16;
    const auto windows = count(split);
    const auto of_memory = (tokens_before_segment(config().model) + context() - 1) / context();
    const auto rows = std::clamp<std::int64_t>(windows / (memories * of_memory), 1, evaluation_rows(context()));
    return (windows + rows - 1) / rows;
  }

  std::int64_t steps_of_epoch_;
};

// Rows are packs: several documents or pieces of long ones (data.packing), or single windows.
class PackStream : public TextStream {
 public:
  // Makes batches of packs. training: for the rows first_row, first_row + 1, ... of a step. evaluation: for an
  // evaluation, in which documents do not see each other and all tokens weigh the same.
  struct Make {
    std::function<Batch(const std::vector<TextPack>& packs, std::int64_t step, std::int64_t first_row,
                        torch::Device device)>
        training;
    std::function<Batch(const std::vector<TextPack>& packs, Split split, torch::Device device)> evaluation;
  };

  // `documents`: nullopt for windows.
  PackStream(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset, Make make,
             std::optional<PackedDocuments> documents = std::nullopt)
      : TextStream(config, std::move(dataset)), make_(std::move(make)), documents_(std::move(documents)) {}

  double tokens_per_step() const override {
    if (!documents_) return TextStream::tokens_per_step();
    return static_cast<double>(documents_->tokens(Split::train)) * epochs_per_step();
  }
  double epochs_per_step() const override {
    if (!documents_) return TextStream::epochs_per_step();
    return static_cast<double>(rows_per_step()) / static_cast<double>(documents_->packs(Split::train));
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto first_row = micro * rows();
    const auto packs = documents_
                           ? documents_->packs_at(Split::train, seed(), step * rows_per_step() + first_row, rows())
                           : windows_at(dataset().random_starts(Split::train, seed(), RandomPurpose::batches, step,
                                                                first_row, rows()));
    return make_.training(packs, step, first_row, device);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto packs =
        documents_ ? documents_->random_packs(split, seed(), index, rows())
                   : windows_at(dataset().random_starts(split, seed(), RandomPurpose::evaluation, index, 0, rows()));
    return make_.evaluation(packs, split, device);
  }

 private:
  std::int64_t count(Split split) const override {
    return documents_ ? documents_->packs(split) : (size(split) + context() - 1) / context();
  }

  Batch batch_of(Split split, std::int64_t first, std::int64_t rows, torch::Device device) const override {
    return make_.evaluation(packs_of(split, first, rows), split, device);
  }

  std::int64_t tokens_of(Split split, std::int64_t first, std::int64_t rows) const override {
    std::int64_t tokens = 0;
    for (const auto& pack : packs_of(split, first, rows))
      for (const auto& piece : pack) tokens += piece.length;
    return tokens;
  }

  std::vector<TextPack> packs_of(Split split, std::int64_t first, std::int64_t rows) const {
    if (documents_) return documents_->packs_at(split, /*seed=*/0, first, rows);
    std::vector<TextPack> windows;
    for (auto start = first * context(); std::ssize(windows) < rows; start += context())
      windows.push_back({{.start = start, .length = std::min(context(), size(split) - start)}});
    return windows;
  }

  std::vector<TextPack> windows_at(const std::vector<std::int64_t>& starts) const {
    std::vector<TextPack> windows;
    for (const auto start : starts) windows.push_back({{.start = start, .length = context()}});
    return windows;
  }

  Make make_;
  std::optional<PackedDocuments> documents_;
};

// The rows of windows. Segments are documents, if these are separate; the rest of a row is padding.
TokenRows window_rows(const TextDataset& dataset, Split split, const std::vector<TextPack>& windows) {
  auto rows = dataset.rows_of(split, windows, /*separate=*/false);
  const auto& documents = dataset.documents(split);
  for (std::size_t row = 0; row < windows.size() && !documents.empty(); ++row) {
    const auto& window = windows[row].front();
    const auto first = documents.begin() + window.start;
    std::copy(first, first + window.length, rows.segments.begin() + static_cast<std::int64_t>(row) * rows.length);
  }
  const bool all_one =
      std::all_of(rows.segments.begin(), rows.segments.end(), [](auto segment) { return segment == 0; });
  if (documents.empty() && all_one) rows.segments.clear();
  return rows;
}

// Makes batches of rows in which some tokens are hidden.
using RowsOfPacks = std::function<TokenRows(Split split, const std::vector<TextPack>& packs, bool trains)>;
PackStream::Make masked(const ExperimentConfig& config, const Tokenizer& tokenizer, const RowsOfPacks& rows_of) {
  const auto masking = std::make_shared<const Masking>(std::get<MaskedLanguageModelConfig>(config.task), tokenizer);
  const auto training = [masking, rows_of, seed = static_cast<std::uint64_t>(config.train.seed)](
                            const auto& packs, std::int64_t step, std::int64_t first_row, torch::Device device) {
    auto rows = rows_of(Split::train, packs, true);
    masking->mask_for_training(rows, packs, seed, step, first_row);
    if (device.is_cuda()) masking->pad_places(rows);  // a graph is only replayed for a step of the same shape
    return to_batch(rows, device);
  };
  const auto evaluation = [masking, rows_of](const auto& packs, Split split, torch::Device device) {
    auto rows = rows_of(split, packs, false);
    masking->mask_for_evaluation(rows, packs, split);
    return to_batch(rows, device);
  };
  return {training, evaluation};
}

// The data that the parts of a task over a text share.
struct TaskText {
  // Throws the errors of load_corpus and TextDataset. An empty codec is made from the text.
  TaskText(const ExperimentConfig& config, bool offline, Codec given_codec)
      : corpus(load_corpus(*text_data_of(config.task), offline)),
        codec(std::move(given_codec)),
        dataset(corpus, *text_data_of(config.task), context_of(config.model), codec.tokenizer) {
    corpus.text = {};  // from here on only the tokens are needed
    corpus.held_out.reset();
    corpus.document_starts = corpus.held_out_document_starts = {};
  }

  // nullopt if the tokenizer has no unknown token. The unknown token is easy to predict, so the measures report how
  // frequent it is.
  std::optional<double> unknown_token_fraction(Split split) const {
    const auto unknown = codec.tokenizer->unknown_id();
    if (!unknown) return std::nullopt;
    const auto& tokens = dataset.tokens(split);
    return static_cast<double>(std::count(tokens.begin(), tokens.end(), *unknown)) / static_cast<double>(tokens.size());
  }

  double bytes_per_token(Split split) const {
    return static_cast<double>(dataset.bytes(split)) / static_cast<double>(dataset.tokens(split).size());
  }

  // nullopt also if white space is dropped.
  std::optional<double> unknown_character_fraction(Split split) const {
    const auto unknown = dataset.unknown_characters(split);
    if (!unknown || !codec.tokenizer->unknown_id()) return std::nullopt;
    return static_cast<double>(*unknown) / static_cast<double>(dataset.characters(split));
  }

  Corpus corpus;  // without its text
  Codec codec;
  TextDataset dataset;
};

// The task over a text, without batches and measures.
Task task_over(const std::shared_ptr<const TaskText>& text) {
  const auto vocabulary = text->codec.tokenizer->vocabulary_size();
  const auto train_tokens = text->dataset.tokens(Split::train).size(),
             validation_tokens = text->dataset.tokens(Split::validation).size();
  auto description = text->corpus.description;
  description["train_tokens"] = train_tokens;
  description["validation_tokens"] = validation_tokens;
  description["vocabulary"] = vocabulary;
  const auto tokens = text->unknown_token_fraction(Split::validation);
  const auto characters = text->unknown_character_fraction(Split::validation);
  return {.codec = {text, &text->codec},
          .description = std::move(description),
          .summary = fmt::format("{} ({} + {} tokens, vocabulary of {} tokens{}{})", text->corpus.path.string(),
                                 train_tokens, validation_tokens, vocabulary,
                                 tokens ? fmt::format("; unknown in validation: {:.2f}% of tokens", 100 * *tokens) : "",
                                 characters ? fmt::format(", {:.2f}% of characters", 100 * *characters) : ""),
          .bytes_per_token = text->bytes_per_token(Split::train),
          .batches = nullptr,
          .objective = token_objective(),
          .measures = nullptr};
}

}  // namespace

std::shared_ptr<const BatchStream> make_text_stream(const ExperimentConfig& config,
                                                    std::shared_ptr<const TextDataset> dataset) {
  const auto* options = packing_options(packing_of(config));
  if (options == nullptr && tokens_before_segment(config.model) > 0)
    return std::make_shared<OrderedWindows>(config, std::move(dataset));
  if (options == nullptr) return std::make_shared<Windows>(config, std::move(dataset));
  const auto* task = std::get_if<LanguageModelConfig>(&config.task);
  const bool by_sequence = task != nullptr && task->loss == LossUnit::sequence;
  const auto training = [dataset, separate = options->separate, by_sequence](const auto& packs, std::int64_t,
                                                                             std::int64_t, torch::Device device) {
    return to_batch(dataset->packed_rows(Split::train, packs, separate, by_sequence), device);
  };
  const auto evaluation = [dataset](const auto& packs, Split split, torch::Device device) {
    return to_batch(dataset->packed_rows(split, packs, /*separate=*/true, /*by_sequence=*/false), device);
  };
  const auto context = context_of(config.model);
  PackedDocuments documents({dataset->pieces(Split::train, context, 1), dataset->pieces(Split::validation, context, 1)},
                            context, packing_of(config));
  return std::make_shared<PackStream>(config, dataset, PackStream::Make{training, evaluation}, std::move(documents));
}

std::shared_ptr<const BatchStream> make_masked_stream(const ExperimentConfig& config,
                                                      std::shared_ptr<const TextDataset> dataset,
                                                      const Tokenizer& tokenizer) {
  const auto* options = packing_options(packing_of(config));
  if (options == nullptr) {
    const auto rows_of = [dataset](Split split, const auto& windows, bool) {
      return window_rows(*dataset, split, windows);
    };
    return std::make_shared<PackStream>(config, dataset, masked(config, tokenizer, rows_of));
  }
  const auto rows_of = [dataset, separate = options->separate](Split split, const auto& packs, bool trains) {
    return dataset->rows_of(split, packs, !trains || separate);
  };
  const auto context = context_of(config.model);
  PackedDocuments documents({dataset->pieces(Split::train, context), dataset->pieces(Split::validation, context)},
                            context, packing_of(config));
  return std::make_shared<PackStream>(config, dataset, masked(config, tokenizer, rows_of), std::move(documents));
}

Task make_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  auto task = task_over(text);
  task.batches = make_text_stream(config, {text, &text->dataset});
  const auto report = [text](const TokenScores& scores, Split split) {
    const auto& dataset = text->dataset;
    const double tokens_per_character =
        static_cast<double>(dataset.tokens(split).size()) / static_cast<double>(dataset.characters(split));
    const double bits = scores.loss / std::numbers::ln2;
    Scores report = {{"loss", scores.loss},
                     {"perplexity", std::exp(scores.loss)},
                     {"bits_per_character", bits * tokens_per_character},
                     {"accuracy", scores.accuracy},
                     {"tokens", scores.targets}};
    if (scores.bytes > 0) {
      const double bits_per_byte = bits * static_cast<double>(scores.targets) / scores.bytes;
      report.emplace_back("bits_per_byte", bits_per_byte);
      if (const auto lost = dataset.lost_bits(split); lost && *lost > 0)
        report.emplace_back("lossless_bits_per_byte",
                            bits_per_byte + *lost / static_cast<double>(dataset.bytes(split)));
    }
    // Unknown tokens are easy to predict, so the bits are too few for the text that they replace.
    if (const auto fraction = text->unknown_token_fraction(split)) {
      report.emplace_back("unknown_share", *fraction);
      report.emplace_back("unknown_character_fraction", *text->unknown_character_fraction(split));
    }
    return report;
  };
  task.measures = std::make_shared<TokenMeasures>(report, std::vector<std::string>{}, /*by_row=*/false);
  return task;
}

Task make_masked_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  auto task = task_over(text);
  task.batches = make_masked_stream(config, {text, &text->dataset}, *text->codec.tokenizer);
  const std::array<double, 2> unigram_entropy = {text->dataset.unigram_entropy(Split::train),
                                                 text->dataset.unigram_entropy(Split::validation)};
  const auto report = [text, unigram_entropy](const TokenScores& scores, Split split) {
    Scores report = {{"loss", scores.loss},
                     {"perplexity", std::exp(scores.loss)},
                     {"accuracy", scores.accuracy},
                     {"targets", scores.targets},
                     {"unigram_entropy", unigram_entropy.at(static_cast<std::size_t>(split))}};
    if (const auto share = text->unknown_token_fraction(split)) report.emplace_back("unknown_share", *share);
    return report;
  };
  task.measures = std::make_shared<TokenMeasures>(report, std::vector<std::string>{"accuracy"}, /*by_row=*/false);
  return task;
}

}  // namespace metaformer
