#include "tasks/text_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "data/masking.h"
#include "data/token_folder.h"
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
  std::int64_t size(Split split) const { return dataset_->tokens(split).size(); }
  bool trains_from_files() const { return !dataset_->tokens(Split::train).is_in_memory(); }

 private:
  ExperimentConfig config_;
  std::shared_ptr<const TextDataset> dataset_;
};

// Windows at random places; those of the training split are cut on the device.
class Windows : public TextStream {
 public:
  using TextStream::TextStream;

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    if (trains_from_files()) dataset().prefetch(Split::train, starts_of(step + 1, micro));
    return cut(starts_of(step, micro), device);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    return to_batch(dataset().random_windows(split, seed(), RandomPurpose::evaluation, index, 0, rows()), device);
  }

 protected:
  std::int64_t count(Split split) const override { return dataset().consecutive_window_count(split); }

  Batch cut(const std::vector<std::int64_t>& starts, torch::Device device) const {
    if (trains_from_files()) return cut_mapped(starts, device);
    if (!training_tokens_.defined() || training_tokens_.device() != device) {
      const auto on_device = [&](const std::vector<std::int32_t>& numbers) {
        return torch::from_blob(const_cast<std::int32_t*>(numbers.data()), {std::ssize(numbers)}, torch::kInt)
            .to(device);
      };
      training_tokens_ = on_device(dataset().tokens(Split::train).in_memory());
      if (dataset().has_documents())
        training_documents_ = on_device(dataset().documents(Split::train, 0, size(Split::train))).clone();
    }
    return cut_windows(training_tokens_, starts, context(), training_documents_);
  }

 private:
  std::vector<std::int64_t> starts_of(std::int64_t step, std::int64_t micro) const {
    return dataset().random_starts(Split::train, seed(), RandomPurpose::batches, step, micro * rows(), rows());
  }

  // The same for tokens in files, of which only the windows are read.
  Batch cut_mapped(const std::vector<std::int64_t>& starts, torch::Device device) const {
    const auto width = context() + 1;
    auto tokens_t = torch::empty({std::ssize(starts) * width}, torch::kInt), documents_t = torch::Tensor();
    if (dataset().has_documents()) documents_t = torch::empty_like(tokens_t);
    std::vector<std::int64_t> places;
    for (const auto start : starts) {
      const auto place = std::ssize(places) * width;
      dataset().tokens(Split::train).copy(start, width, tokens_t.data_ptr<std::int32_t>() + place);
      if (documents_t.defined())
        std::ranges::copy(dataset().documents(Split::train, start, width),
                          documents_t.data_ptr<std::int32_t>() + place);
      places.push_back(place);
    }
    return cut_windows(tokens_t.to(device), places, context(),
                       documents_t.defined() ? documents_t.to(device) : documents_t);
  }

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
    if (trains_from_files()) {
      auto next = starts;
      for (auto& start : next) start += context();
      dataset().prefetch(Split::train, next);
    }
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
    const auto packs = training_packs(step, first_row);
    const bool is_epoch_end =
        documents_ && (step + 1) * rows_per_step() % documents_->packs(Split::train) < rows_per_step();
    if (!is_epoch_end && trains_from_files())  // the next epoch is not dealt out twice
      dataset().prefetch(Split::train, training_packs(step + 1, first_row));
    return make_.training(packs, step, first_row, device);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto packs =
        documents_ ? documents_->random_packs(split, seed(), index, rows())
                   : windows_at(dataset().random_starts(split, seed(), RandomPurpose::evaluation, index, 0, rows()));
    return make_.evaluation(packs, split, device);
  }

 private:
  std::vector<TextPack> training_packs(std::int64_t step, std::int64_t first_row) const {
    if (documents_) return documents_->packs_at(Split::train, seed(), step * rows_per_step() + first_row, rows());
    return windows_at(dataset().random_starts(Split::train, seed(), RandomPurpose::batches, step, first_row, rows()));
  }

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
  for (std::size_t row = 0; row < windows.size() && dataset.has_documents(); ++row) {
    const auto& [start, length] = windows[row].front();
    std::ranges::copy(dataset.documents(split, start, length),
                      rows.segments.begin() + static_cast<std::int64_t>(row) * rows.length);
  }
  const bool all_one =
      std::all_of(rows.segments.begin(), rows.segments.end(), [](auto segment) { return segment == 0; });
  if (!dataset.has_documents() && all_one) rows.segments.clear();
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

// The fractions of a split's tokens and characters that unknown tokens are, or stand for. The unknown token is easy to
// predict, so the measures report how frequent it is. Nothing if the tokenizer has no unknown token; of characters also
// if white space is dropped.
std::optional<double> unknown_token_fraction(const TextDataset& dataset, Split split) {
  const auto unknown = dataset.text().tokenizer->unknown_id();
  const auto* statistics = dataset.statistics(split);
  if (!unknown || statistics == nullptr) return std::nullopt;
  return static_cast<double>(statistics->count_of(*unknown)) / static_cast<double>(statistics->tokens());
}

std::optional<double> unknown_character_fraction(const TextDataset& dataset, Split split) {
  const auto unknown = dataset.unknown_characters(split);
  if (!unknown || !dataset.text().tokenizer->unknown_id()) return std::nullopt;
  return static_cast<double>(*unknown) / static_cast<double>(dataset.statistics(split)->characters());
}

// The task over a text, without batches and measures.
Task task_over(const std::shared_ptr<const TextDataset>& dataset) {
  const auto& text = dataset->text();
  const auto vocabulary = text.tokenizer->vocabulary_size();
  const auto train_tokens = dataset->tokens(Split::train).size(),
             validation_tokens = dataset->tokens(Split::validation).size();
  auto description = text.description;
  description["train_tokens"] = train_tokens;
  description["validation_tokens"] = validation_tokens;
  description["vocabulary"] = vocabulary;
  const auto tokens = unknown_token_fraction(*dataset, Split::validation);
  const auto characters = unknown_character_fraction(*dataset, Split::validation);
  Task task{.codec = std::make_shared<const Codec>(Codec{.tokenizer = text.tokenizer, .labels = {}}),
            .description = std::move(description),
            .summary = fmt::format(
                "{} ({} + {} tokens, vocabulary of {} tokens{}{})", text.path.string(), train_tokens, validation_tokens,
                vocabulary, tokens ? fmt::format("; unknown in validation: {:.2f}% of tokens", 100 * *tokens) : "",
                characters ? fmt::format(", {:.2f}% of characters", 100 * *characters) : ""),
            .batches = nullptr,
            .objective = token_objective(),
            .measures = nullptr};
  if (const auto* statistics = dataset->statistics(Split::train))
    task.bytes_per_token = static_cast<double>(statistics->bytes()) / static_cast<double>(statistics->tokens());
  return task;
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

namespace {

Task language_model_task(const ExperimentConfig& config, const std::shared_ptr<const TextDataset>& dataset) {
  auto task = task_over(dataset);
  task.batches = make_text_stream(config, dataset);
  const auto report = [dataset](const TokenScores& scores, Split split) {
    const auto* statistics = dataset->statistics(split);
    const double bits = scores.loss / std::numbers::ln2;
    Scores report = {{"loss", scores.loss}, {"perplexity", std::exp(scores.loss)}};
    if (statistics != nullptr)
      report.emplace_back("bits_per_character", bits * static_cast<double>(statistics->tokens()) /
                                                    static_cast<double>(statistics->characters()));
    report.emplace_back("accuracy", scores.accuracy);
    report.emplace_back("tokens", scores.targets);
    if (scores.bytes > 0) {
      const double bits_per_byte = bits * static_cast<double>(scores.targets) / scores.bytes;
      report.emplace_back("bits_per_byte", bits_per_byte);
      if (const auto lost = statistics != nullptr ? statistics->lost_bits() : std::nullopt; lost && *lost > 0)
        report.emplace_back("lossless_bits_per_byte", bits_per_byte + *lost / static_cast<double>(statistics->bytes()));
    }
    // Unknown tokens are easy to predict, so the bits are too few for the text that they replace.
    if (const auto fraction = unknown_token_fraction(*dataset, split)) {
      report.emplace_back("unknown_share", *fraction);
      report.emplace_back("unknown_character_fraction", *unknown_character_fraction(*dataset, split));
    }
    return report;
  };
  task.measures = std::make_shared<TokenMeasures>(report, std::vector<std::string>{}, /*by_row=*/false);
  return task;
}

Task masked_language_model_task(const ExperimentConfig& config, const std::shared_ptr<const TextDataset>& dataset) {
  auto task = task_over(dataset);
  task.batches = make_masked_stream(config, dataset, *dataset->text().tokenizer);
  const std::array<double, 2> unigram_entropy = {dataset->unigram_entropy(Split::train),
                                                 dataset->unigram_entropy(Split::validation)};
  const auto report = [dataset, unigram_entropy](const TokenScores& scores, Split split) {
    Scores report = {{"loss", scores.loss},
                     {"perplexity", std::exp(scores.loss)},
                     {"accuracy", scores.accuracy},
                     {"targets", scores.targets},
                     {"unigram_entropy", unigram_entropy.at(static_cast<std::size_t>(split))}};
    if (const auto share = unknown_token_fraction(*dataset, split)) report.emplace_back("unknown_share", *share);
    return report;
  };
  task.measures = std::make_shared<TokenMeasures>(report, std::vector<std::string>{"accuracy"}, /*by_row=*/false);
  return task;
}

}  // namespace

Task text_task_over(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset) {
  return is<MaskedLanguageModelConfig>(config.task) ? masked_language_model_task(config, dataset)
                                                    : language_model_task(config, dataset);
}

Task make_text_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto& data = *text_data_of(config.task);
  return text_task_over(config,
                        std::make_shared<const TextDataset>(load_text(data, offline, std::move(codec.tokenizer)), data,
                                                            context_of(config.model)));
}

}  // namespace metaformer
