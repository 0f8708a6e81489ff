#include "tasks/text_streams.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "data/masking.h"
#include "tasks/batches.h"

namespace metaformer {

static const PackingConfig& packing_of(const ExperimentConfig& config) { return text_data_of(config.task)->packing; }

DocumentStream::DocumentStream(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset,
                               std::array<std::vector<TextPiece>, 2> pieces)
    : TextStream(config, std::move(dataset)),
      options_(*packing_options(packing_of(config))),
      documents_(std::move(pieces), context(), packing_of(config)) {}

double DocumentStream::tokens_per_step() const {
  return static_cast<double>(documents_.tokens(Split::train)) * epochs_per_step();
}

double DocumentStream::epochs_per_step() const {
  return static_cast<double>(rows_per_step()) / static_cast<double>(documents_.packs(Split::train));
}

Batch DocumentStream::training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const {
  const auto first_row = micro * rows();
  const auto packs = documents_.packs_at(Split::train, seed(), step * rows_per_step() + first_row, rows());
  return training(packs, step, first_row, device);
}

std::int64_t DocumentStream::evaluation_batches(Split split) const {
  const auto rows = evaluation_rows(context()), packs = documents_.packs(split);
  return (packs + rows - 1) / rows;
}

std::vector<TextPack> DocumentStream::evaluation_packs(Split split, std::int64_t index) const {
  const auto first = index * evaluation_rows(context());
  const auto rows = std::min(evaluation_rows(context()), documents_.packs(split) - first);
  return documents_.packs_at(split, /*seed=*/0, first, rows);
}

Batch DocumentStream::evaluation_batch(Split split, std::int64_t index, torch::Device device) const {
  return evaluation(evaluation_packs(split, index), split, device);
}

std::int64_t DocumentStream::evaluation_tokens(Split split, std::int64_t index) const {
  std::int64_t tokens = 0;
  for (const auto& pack : evaluation_packs(split, index))
    for (const auto& piece : pack) tokens += piece.length;
  return tokens;
}

Batch DocumentStream::random_batch(Split split, std::int64_t index, torch::Device device) const {
  return evaluation(documents_.random_packs(split, seed(), index, rows()), split, device);
}

namespace {

// Windows of the training split, cut on the device.
class TextWindows : public TextStream {
 public:
  using TextStream::TextStream;

 protected:
  Batch cut(const std::vector<std::int64_t>& starts, torch::Device device) const {
    if (!training_tokens_.defined() || training_tokens_.device() != device) {
      training_tokens_ = on_device(dataset().tokens(Split::train), device);
      if (const auto& documents = dataset().documents(Split::train); !documents.empty())
        training_documents_ = on_device(documents, device);
    }
    return cut_windows(training_tokens_, starts, context(), training_documents_);
  }

 private:
  static torch::Tensor on_device(const std::vector<std::int32_t>& numbers, torch::Device device) {
    return torch::from_blob(const_cast<std::int32_t*>(numbers.data()), {std::ssize(numbers)}, torch::kInt).to(device);
  }

  // int, where batches were last asked for; on the CPU the dataset's own memory
  mutable torch::Tensor training_tokens_, training_documents_;
};

class RandomWindows : public TextWindows {
 public:
  using TextWindows::TextWindows;

  double epochs_per_step() const override {
    return tokens_per_step() / static_cast<double>(dataset().tokens(Split::train).size());
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto starts =
        dataset().random_starts(Split::train, seed(), RandomPurpose::batches, step, micro * rows(), rows());
    return cut(starts, device);
  }

  std::int64_t evaluation_batches(Split split) const override {
    const auto rows = evaluation_rows(context());
    return (dataset().consecutive_window_count(split) + rows - 1) / rows;
  }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto rows = evaluation_rows(context());
    return to_batch(dataset().consecutive_windows(split, index * rows, rows), device);
  }

  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override {
    const auto of_batch = evaluation_rows(context()) * context();
    return std::min(of_batch, std::ssize(dataset().tokens(split)) - 1 - index * of_batch);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    return to_batch(dataset().random_windows(split, seed(), RandomPurpose::evaluation, index, 0, rows()), device);
  }
};

// The rows of all passes of a step lie side by side in the text, each as long as the others (Dai et al. 2019). What is
// left over, fewer tokens than a step has, is before and behind them, another part of it in every epoch.
class OrderedStreams : public TextWindows {
 public:
  OrderedStreams(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset)
      : TextWindows(config, std::move(dataset)), steps_of_epoch_(targets() / (rows_per_step() * context())) {}

  // What only evaluates needs no rows of a step.
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
    const auto end = std::ssize(dataset().tokens(split)) - 1;
    std::int64_t tokens = 0;
    for (const auto start : evaluation_starts(split, index))
      tokens += std::clamp<std::int64_t>(end - start, 0, context());
    return tokens;
  }

  Batch random_batch(Split, std::int64_t, torch::Device) const override {
    throw Error(ExitCode::usage, fmt::format("random batches have nothing before them for {} to go on from: evaluate "
                                             "the whole split",
                                             order_key(config().model)));
  }

 private:
  std::int64_t targets() const { return static_cast<std::int64_t>(dataset().tokens(Split::train).size()) - 1; }

  // Every row is a part of the split and begins with nothing before it.
  std::vector<std::int64_t> evaluation_starts(Split split, std::int64_t index) const {
    const auto windows = dataset().consecutive_window_count(split), of_row = windows_of_row(split);
    std::vector<std::int64_t> starts;
    for (std::int64_t row = 0; row < (windows + of_row - 1) / of_row; ++row)
      starts.push_back((row * of_row + index) * context());
    return starts;
  }

  // Rows are long against what is remembered, so that a small part of the split is predicted with less than all of it.
  std::int64_t windows_of_row(Split split) const {
    constexpr std::int64_t memories = 16;
    const auto windows = dataset().consecutive_window_count(split);
    const auto of_memory = (tokens_before_segment(config().model) + context() - 1) / context();
    const auto rows = std::clamp<std::int64_t>(windows / (memories * of_memory), 1, evaluation_rows(context()));
    return (windows + rows - 1) / rows;
  }

  std::int64_t steps_of_epoch_;
};

class DocumentRows : public DocumentStream {
 public:
  DocumentRows(const ExperimentConfig& config, const std::shared_ptr<const TextDataset>& dataset)
      : DocumentStream(config, dataset,
                       {dataset->pieces_with_targets(Split::train, context_of(config.model)),
                        dataset->pieces_with_targets(Split::validation, context_of(config.model))}) {}

 private:
  Batch training(const std::vector<TextPack>& packs, std::int64_t, std::int64_t, torch::Device device) const override {
    const auto* task = std::get_if<LanguageModelConfig>(&config().task);
    const bool by_sequence = task != nullptr && task->loss == LossUnit::sequence;
    return to_batch(dataset().packed_rows(Split::train, packs, options().separate, by_sequence), device);
  }

  Batch evaluation(const std::vector<TextPack>& packs, Split split, torch::Device device) const override {
    return to_batch(dataset().packed_rows(split, packs, /*separate=*/true, /*by_sequence=*/false), device);
  }
};

}  // namespace

std::shared_ptr<const BatchStream> make_text_stream(const ExperimentConfig& config,
                                                    std::shared_ptr<const TextDataset> dataset) {
  if (packing_options(text_data_of(config.task)->packing) != nullptr)
    return std::make_shared<DocumentRows>(config, std::move(dataset));
  if (tokens_before_segment(config.model) > 0) return std::make_shared<OrderedStreams>(config, std::move(dataset));
  return std::make_shared<RandomWindows>(config, std::move(dataset));
}

namespace {

const MaskedLanguageModelConfig& task_of(const ExperimentConfig& config) {
  return std::get<MaskedLanguageModelConfig>(config.task);
}

// Rows become batches of which some tokens are hidden.
class MaskedBatches {
 public:
  MaskedBatches(const ExperimentConfig& config, const Tokenizer& tokenizer)
      : seed_(static_cast<std::uint64_t>(config.train.seed)), masking_(task_of(config), tokenizer) {}

  Batch training(TokenRows rows, const std::vector<TextPack>& packs, std::int64_t step, std::int64_t first_row,
                 torch::Device device) const {
    masking_.mask_for_training(rows, packs, seed_, step, first_row);
    if (device.is_cuda()) masking_.pad_places(rows);  // a step of another shape is not replayed as a graph
    return to_batch(rows, device);
  }

  Batch evaluation(TokenRows rows, const std::vector<TextPack>& packs, Split split, torch::Device device) const {
    masking_.mask_for_evaluation(rows, packs, split);
    return to_batch(rows, device);
  }

 private:
  std::uint64_t seed_;
  Masking masking_;
};

class MaskedWindows : public TextStream {
 public:
  MaskedWindows(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset, const Tokenizer& tokenizer)
      : TextStream(config, std::move(dataset)), masked_(config, tokenizer) {}

  double epochs_per_step() const override {
    return tokens_per_step() / static_cast<double>(dataset().tokens(Split::train).size());
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto first_row = micro * rows();
    const auto windows = random_windows(Split::train, RandomPurpose::batches, step, first_row);
    return masked_.training(rows_of(Split::train, windows), windows, step, first_row, device);
  }

  std::int64_t evaluation_batches(Split split) const override {
    const auto of_batch = evaluation_rows(context()) * context();
    return (size(split) + of_batch - 1) / of_batch;
  }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto first = index * evaluation_rows(context()) * context();
    const auto last = std::min(first + evaluation_rows(context()) * context(), size(split));
    std::vector<TextPack> windows;
    for (auto start = first; start < last; start += context())
      windows.push_back({{.start = start, .length = std::min(context(), last - start)}});
    return masked_.evaluation(rows_of(split, windows), windows, split, device);
  }

  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override {
    const auto of_batch = evaluation_rows(context()) * context();
    return std::min(of_batch, size(split) - index * of_batch);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto windows = random_windows(split, RandomPurpose::evaluation, index, 0);
    return masked_.evaluation(rows_of(split, windows), windows, split, device);
  }

 private:
  std::int64_t size(Split split) const { return std::ssize(dataset().tokens(split)); }

  std::vector<TextPack> random_windows(Split split, RandomPurpose purpose, std::int64_t step,
                                       std::int64_t first) const {
    std::vector<TextPack> windows;
    for (const auto start : dataset().random_starts(split, seed(), purpose, step, first, rows()))
      windows.push_back({{.start = start, .length = context()}});
    return windows;
  }

  // Segments are documents, if these are separate, and what they leave empty is padding.
  TokenRows rows_of(Split split, const std::vector<TextPack>& windows) const {
    auto rows = dataset().rows_of(split, windows, /*separate=*/false);
    const auto& documents = dataset().documents(split);
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

  MaskedBatches masked_;
};

class MaskedDocuments : public DocumentStream {
 public:
  MaskedDocuments(const ExperimentConfig& config, const std::shared_ptr<const TextDataset>& dataset,
                  const Tokenizer& tokenizer)
      : DocumentStream(config, dataset,
                       {dataset->pieces(Split::train, context_of(config.model)),
                        dataset->pieces(Split::validation, context_of(config.model))}),
        masked_(config, tokenizer) {}

 private:
  Batch training(const std::vector<TextPack>& packs, std::int64_t step, std::int64_t first_row,
                 torch::Device device) const override {
    return masked_.training(dataset().rows_of(Split::train, packs, options().separate), packs, step, first_row, device);
  }

  Batch evaluation(const std::vector<TextPack>& packs, Split split, torch::Device device) const override {
    return masked_.evaluation(dataset().rows_of(split, packs, /*separate=*/true), packs, split, device);
  }

  MaskedBatches masked_;
};

}  // namespace

std::shared_ptr<const BatchStream> make_masked_stream(const ExperimentConfig& config,
                                                      std::shared_ptr<const TextDataset> dataset,
                                                      const Tokenizer& tokenizer) {
  if (packing_options(task_of(config).data.packing) != nullptr)
    return std::make_shared<MaskedDocuments>(config, std::move(dataset), tokenizer);
  return std::make_shared<MaskedWindows>(config, std::move(dataset), tokenizer);
}

}  // namespace metaformer
