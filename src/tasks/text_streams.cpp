#include "tasks/text_streams.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "data/packing/packed_order.h"
#include "tasks/batches.h"

namespace metaformer {

namespace {

// What both orders of a text have in common.
class TextStream : public BatchStream {
 public:
  TextStream(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset)
      : config_(config), dataset_(std::move(dataset)) {}

  double tokens_per_step() const override { return static_cast<double>(rows_per_step() * context()); }

 protected:
  const ExperimentConfig& config() const { return config_; }
  const TextDataset& dataset() const { return *dataset_; }
  std::int64_t context() const { return context_of(config_.model); }
  std::int64_t rows() const { return config_.train.batch_size; }
  std::int64_t rows_per_step() const { return rows() * config_.train.accumulate; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(config_.train.seed); }

  // Windows of the training split.
  Batch cut(const std::vector<std::int64_t>& starts, torch::Device device) const {
    if (!training_tokens_.defined() || training_tokens_.device() != device) {
      training_tokens_ = on_device(dataset_->tokens(Split::train), device);
      if (const auto& documents = dataset_->documents(Split::train); !documents.empty())
        training_documents_ = on_device(documents, device);
    }
    return cut_windows(training_tokens_, starts, context(), training_documents_);
  }

 private:
  static torch::Tensor on_device(const std::vector<std::int32_t>& numbers, torch::Device device) {
    return torch::from_blob(const_cast<std::int32_t*>(numbers.data()), {std::ssize(numbers)}, torch::kInt).to(device);
  }

  ExperimentConfig config_;
  std::shared_ptr<const TextDataset> dataset_;
  // int, where batches were last asked for; on the CPU the dataset's own memory
  mutable torch::Tensor training_tokens_, training_documents_;
};

class RandomWindows : public TextStream {
 public:
  using TextStream::TextStream;

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

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    return to_batch(dataset().random_windows(split, seed(), RandomPurpose::evaluation, index, 0, rows()), device);
  }
};

// The rows of all passes of a step lie side by side in the text, each as long as the others (Dai et al. 2019). What is
// left over, fewer tokens than a step has, is before and behind them, another part of it in every epoch.
class OrderedStreams : public TextStream {
 public:
  OrderedStreams(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset)
      : TextStream(config, std::move(dataset)), steps_of_epoch_(targets() / (rows_per_step() * context())) {
    if (steps_of_epoch_ == 0)
      throw Error(ExitCode::data,
                  fmt::format("the training split has {} tokens; with model.memory train.batch_size {} and "
                              "train.accumulate {} make {} rows, which model.context {} cuts out of at least {}",
                              targets() + 1, rows(), config.train.accumulate, rows_per_step(), context(),
                              rows_per_step() * context() + 1));
  }

  double epochs_per_step() const override { return 1 / static_cast<double>(steps_of_epoch_); }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
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

  // Every row is a part of the split and begins with nothing before it.
  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto windows = dataset().consecutive_window_count(split), of_row = windows_of_row(split);
    std::vector<std::int64_t> starts;
    for (std::int64_t row = 0; row < (windows + of_row - 1) / of_row; ++row)
      starts.push_back((row * of_row + index) * context());
    auto batch = to_batch(dataset().windows(split, starts), device);
    batch.begins = index == 0;
    return batch;
  }

  Batch random_batch(Split, std::int64_t, torch::Device) const override {
    throw Error(ExitCode::usage,
                "random batches have nothing before them for model.memory to remember: evaluate the whole split");
  }

 private:
  std::int64_t targets() const { return static_cast<std::int64_t>(dataset().tokens(Split::train).size()) - 1; }

  // Rows are long against the memory, so that a small part of the split is predicted with less than all of it.
  std::int64_t windows_of_row(Split split) const {
    constexpr std::int64_t memories = 16;
    const auto windows = dataset().consecutive_window_count(split);
    const auto of_memory = (transformer(config()).memory + context() - 1) / context();
    const auto rows = std::clamp<std::int64_t>(windows / (memories * of_memory), 1, evaluation_rows(context()));
    return (windows + rows - 1) / rows;
  }

  std::int64_t steps_of_epoch_;
};

// Rows of several documents, or of pieces of long ones.
class PackedDocuments : public TextStream {
 public:
  PackedDocuments(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset)
      : TextStream(config, std::move(dataset)), options_(*packing_options(language_model(config).data.packing)) {
    for (const auto split : {Split::train, Split::validation}) {
      const auto at = static_cast<std::size_t>(split);
      pieces_[at] = this->dataset().pieces(split, context());
      order_[at].emplace(lengths(pieces_[at]), context(), language_model(config).data.packing);
    }
  }

  double tokens_per_step() const override {
    double targets = 0;
    for (const auto& piece : pieces_[0]) targets += static_cast<double>(piece.length);
    return targets * epochs_per_step();
  }

  double epochs_per_step() const override {
    return static_cast<double>(rows_per_step()) / static_cast<double>(order_[0]->packs());
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const bool by_sequence = language_model(config()).loss == LossUnit::sequence;
    const auto packs = packs_of(Split::train, seed(), step * rows_per_step() + micro * rows(), rows());
    return to_batch(dataset().packed_rows(Split::train, packs, options_.separate, by_sequence), device);
  }

  std::int64_t evaluation_batches(Split split) const override {
    const auto rows = evaluation_rows(context()), packs = order(split).packs();
    return (packs + rows - 1) / rows;
  }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto first = index * evaluation_rows(context());
    const auto rows = std::min(evaluation_rows(context()), order(split).packs() - first);
    return separate_batch(split, packs_of(split, /*seed=*/0, first, rows), device);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    const Rng rng(seed(), RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
    const auto packs = static_cast<std::uint64_t>(order(split).packs());
    std::vector<std::vector<TextPiece>> chosen;
    for (std::int64_t row = 0; row < rows(); ++row)
      chosen.push_back(
          packs_of(split, seed(), static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(row), packs)), 1)
              .front());
    return separate_batch(split, chosen, device);
  }

 private:
  static std::vector<std::int64_t> lengths(const std::vector<TextPiece>& pieces) {
    std::vector<std::int64_t> lengths;
    for (const auto& piece : pieces) lengths.push_back(piece.length);
    return lengths;
  }

  const PackedOrder& order(Split split) const { return *order_[static_cast<std::size_t>(split)]; }

  std::vector<std::vector<TextPiece>> packs_of(Split split, std::uint64_t seed, std::int64_t first,
                                               std::int64_t rows) const {
    std::vector<std::vector<TextPiece>> packs;
    for (auto place = first; place < first + rows; ++place) {
      auto& pack = packs.emplace_back();
      for (const auto index : order(split).at(seed, place))
        pack.push_back(pieces_[static_cast<std::size_t>(split)][index]);
    }
    return packs;
  }

  // For evaluation, where documents see nothing of each other and tokens weigh the same.
  Batch separate_batch(Split split, const std::vector<std::vector<TextPiece>>& packs, torch::Device device) const {
    return to_batch(dataset().packed_rows(split, packs, /*separate=*/true, /*by_sequence=*/false), device);
  }

  PackingOptions options_;
  std::array<std::vector<TextPiece>, 2> pieces_;
  std::array<std::optional<PackedOrder>, 2> order_;
};

}  // namespace

std::shared_ptr<const BatchStream> make_text_stream(const ExperimentConfig& config,
                                                    std::shared_ptr<const TextDataset> dataset) {
  if (packing_options(language_model(config).data.packing) != nullptr)
    return std::make_shared<PackedDocuments>(config, std::move(dataset));
  const auto* model = std::get_if<TransformerConfig>(&config.model);
  if (model != nullptr && model->memory > 0) return std::make_shared<OrderedStreams>(config, std::move(dataset));
  return std::make_shared<RandomWindows>(config, std::move(dataset));
}

}  // namespace metaformer
