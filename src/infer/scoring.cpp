#include "infer/scoring.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "base/json.h"
#include "base/rows.h"
#include "base/signals.h"
#include "data/corpus.h"
#include "data/labelled.h"
#include "data/pairs.h"
#include "data/text_dataset.h"
#include "infer/answers.h"
#include "infer/sampling.h"
#include "ops/autocast.h"
#include "ops/functional.h"
#include "tasks/batches.h"
#include "tasks/make_task.h"
#include "tasks/text_tasks.h"

namespace metaformer {

namespace {

void require_texts(const LoadedRun& run, const ScoredFile& file) {
  const auto& task = run.experiment.config.task;
  const auto* pairs = std::get_if<SequenceToSequenceConfig>(&task);
  const bool has_texts = text_data_of(task) != nullptr || is<ClassificationConfig>(task) ||
                         (pairs != nullptr && synthetic_options(pairs->data.synthetic) == nullptr);
  if (!has_texts)
    fail_usage("{}: task {} of this run has no texts; --split and --set task.KEY=VALUE choose its rows",
               file.path.string(), kind_of(task));
  if (file.targets && pairs == nullptr)
    fail_usage("--targets {}: has no effect on a run of task {}; only sequence_to_sequence has targets",
               file.targets->string(), kind_of(task));
}

// The keys of the data section that say how files are read, with the file in place of every path.
TextDataConfig text_config_of(const LoadedRun& run, const std::filesystem::path& path) {
  auto config = *text_data_of(run.experiment.config.task);
  config.path = path.string();
  config.validation_path.reset();
  config.mixture.clear();
  config.format = TableFormat::automatic;
  config.packing = NoPackingConfig{};
  return config;
}

void set_files(DataConfig& config, const std::filesystem::path& path) {
  config.corpus = DataConfig().corpus;
  config.path = config.validation_path = PathText(path.string());
  config.format = TableFormat::automatic;
}

ExperimentConfig config_of(const LoadedRun& run, const ScoredFile& file) {
  auto config = run.experiment.config;
  if (auto* task = std::get_if<ClassificationConfig>(&config.task)) {
    set_files(task->data, file.path);
    task->data.test_path = PathText(file.path.string());
    task->data.extra_path.reset();
  } else if (auto* pairs = std::get_if<SequenceToSequenceConfig>(&config.task)) {
    auto& data = pairs->data;
    set_files(data, file.path);
    data.test_path = PathText(file.path.string());
    data.source_language = ParallelDataConfig().source_language;
    data.target_language = ParallelDataConfig().target_language;
    data.target_path = data.validation_target_path = data.test_target_path =
        file.targets ? std::optional(PathText(file.targets->string())) : std::nullopt;
  } else {
    *text_data_of(config.task) = text_config_of(run, file.path);
  }
  return config;
}

// Sums of log-probabilities of texts.
class LineScorer {
 public:
  LineScorer(const LoadedRun& run, const std::function<void(const LineScore&)>& use) : run_(run), use_(use) {}

  // Rows of tokens, of which each has targets; `of_line`: the line of each row.
  void add(const Batch& batch, const std::vector<std::size_t>& lines) {
    const torch::NoGradGuard no_grad;
    const AutocastScope autocast(run_.experiment.config.train.precision, run_.device);
    const auto logits_bcv = widened(run_.predictor->logits(batch));
    const auto loss_t = at::cross_entropy_loss(logits_bcv.flatten(0, -2), batch.targets_bc.flatten(), {},
                                               at::Reduction::None, /*ignore_index=*/-1);
    const auto loss_b = loss_t.view_as(batch.targets_bc).to(torch::kDouble).sum(1).cpu();
    for (std::size_t row = 0; row < lines.size(); ++row)
      scores_[lines[row]].log_probability -= loss_b[static_cast<std::int64_t>(row)].item<double>();
  }

  // Returns the index of a new line.
  std::size_t begin_line(LineScore score) {
    scores_.push_back(std::move(score));
    return scores_.size() - 1;
  }

  // After all rows of the lines so far.
  void flush() {
    std::int64_t unanswered = 0;
    for (const auto& score : scores_) unanswered += !std::isfinite(score.log_probability);
    require_finite_answers(unanswered, std::ssize(scores_));
    for (const auto& score : scores_) use_(score);
    scores_.clear();
  }

 private:
  const LoadedRun& run_;
  const std::function<void(const LineScore&)>& use_;
  std::vector<LineScore> scores_;
};

// Calls `use` with the text and number of every line, or of every JSON object.
void for_each_text(const std::filesystem::path& path, const TextDataConfig& config,
                   const std::function<void(std::string_view text, std::int64_t line)>& use) {
  if (format_by_name(path) == TableFormat::jsonl) {
    const auto refuse = [&](std::int64_t line, const std::string& why) {
      fail_data("{}:{}: {}", path.string(), line, why);
    };
    const auto use_member = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
      if (const auto why = defect_of_text_member(*members.front(), config.text_field); !why.empty()) refuse(line, why);
      use(members.front()->get_ref<const std::string&>(), line);
    };
    return for_each_json_object(read_text_file(path).text, {config.text_field}, path.string(), use_member, refuse);
  }
  std::int64_t line = 0;
  LineSplitter splitter(
      [&](std::string_view text, std::size_t) { use(without_last_break(std::string(text)), ++line); });
  UnpackedFile file(path);
  for (auto piece = file.next(); !piece.empty(); piece = file.next()) splitter.add(piece);
  splitter.finish();
}

// Consecutive windows of texts, padded to the longest.
class WindowBatch {
 public:
  WindowBatch(const LoadedRun& run, LineScorer& scorer)
      : run_(run),
        context_(context_of(run.experiment.config.model)),
        most_rows_(evaluation_rows(context_)),
        scorer_(scorer) {}

  void add(const std::vector<std::int32_t>& ids, std::size_t line) {
    for (std::int64_t start = 0; start + 1 < std::ssize(ids); start += context_) {
      const auto length = std::min(context_, std::ssize(ids) - 1 - start);
      windows_.emplace_back(ids.begin() + start, ids.begin() + start + length + 1);
      lines_.push_back(line);
      if (std::ssize(windows_) == most_rows_) score();
    }
  }

  void score() {
    if (windows_.empty()) return;
    TokenRows rows{.rows = std::ssize(windows_)};
    for (const auto& window : windows_) rows.length = std::max(rows.length, std::ssize(window) - 1);
    for (std::size_t row = 0; row < windows_.size(); ++row) {
      const auto& window = windows_[row];
      rows.ids.insert(rows.ids.end(), window.begin(), window.end() - 1);
      rows.targets.insert(rows.targets.end(), window.begin() + 1, window.end());
      rows.segments.resize(rows.ids.size(), 0);
      rows.target_count += std::ssize(window) - 1;
      const auto row_end = (row + 1) * static_cast<std::size_t>(rows.length);
      rows.ids.resize(row_end, 0);
      rows.targets.resize(row_end, -1);
      rows.segments.resize(row_end, -1);
    }
    if (rows.target_count == rows.rows * rows.length) rows.segments.clear();
    auto batch = to_batch(rows, run_.device);
    batch.begins = true;
    scorer_.add(batch, lines_);
    windows_.clear();
    lines_.clear();
  }

 private:
  const LoadedRun& run_;
  std::int64_t context_, most_rows_;
  LineScorer& scorer_;
  std::vector<std::vector<std::int32_t>> windows_;  // with the target of the last token
  std::vector<std::size_t> lines_;
};

void score_texts(const LoadedRun& run, const ScoredFile& file, const std::function<void(const LineScore&)>& use) {
  const auto& tokenizer = *run.codec.tokenizer;
  LineScorer scorer(run, use);
  WindowBatch windows(run, scorer);
  std::int64_t lines = 0;
  for_each_text(file.path, text_config_of(run, file.path), [&](std::string_view text, std::int64_t line) {
    throw_if_stopped();
    std::vector<std::int32_t> ids, bytes;
    try {
      ids = tokenizer.encode(text);
      bytes = tokenizer.token_bytes(text);
    } catch (const Error& error) {
      fail_data("{}:{}: {}", file.path.string(), line, error.what());
    }
    LineScore score{.line = line, .tokens = std::max<std::int64_t>(std::ssize(ids) - 1, 0), .bytes = 0};
    for (std::size_t i = 1; i < bytes.size(); ++i) *score.bytes += bytes[i];
    windows.add(ids, scorer.begin_line(std::move(score)));
    constexpr std::int64_t lines_between = 4096;
    if (++lines % lines_between != 0) return;
    windows.score();
    scorer.flush();
  });
  windows.score();
  scorer.flush();
}

void score_pairs(const LoadedRun& run, const ScoredFile& file, const std::function<void(const LineScore&)>& use) {
  const auto config = config_of(run, file);
  const auto& data = std::get<SequenceToSequenceConfig>(config.task).data;
  const auto context = context_of(config.model);
  const auto& tokenizer = *run.codec.tokenizer;
  const auto mark = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  std::vector<std::array<std::string, 2>> texts;
  std::vector<std::int64_t> lines;
  if (file.targets) {
    for (auto& pair : read_line_pairs(file.path, *file.targets).pairs) {
      texts.push_back({std::move(pair.source), std::move(pair.target)});
      lines.push_back(std::ssize(lines) + 1);
    }
  } else {
    for (auto& row : read_pair_table(file.path, data, "--targets").rows) {
      texts.push_back({std::move(row.fields[0]), std::move(row.fields[1])});
      lines.push_back(row.line);
    }
  }
  LineScorer scorer(run, use);
  const auto most_rows = static_cast<std::size_t>(evaluation_rows(context));
  for (std::size_t first = 0; first < texts.size(); first += most_rows) {
    throw_if_stopped();
    std::vector<EncodedPair> pairs;
    std::vector<std::size_t> rows;
    for (auto i = first; i < std::min(first + most_rows, texts.size()); ++i) {
      auto& pair = pairs.emplace_back(
          EncodedPair{.source = tokenizer.encode(texts[i][0]), .target = tokenizer.encode(texts[i][1])});
      if (pair.source.empty() || pair.target.empty())
        fail_data("{}:{}: the {} has no token", file.path.string(), lines[i],
                  pair.source.empty() ? "source" : "target");
      rows.push_back(scorer.begin_line({.line = lines[i],
                                        .tokens = row_length(pair.target, context),
                                        .bytes = std::nullopt,
                                        .label = {},
                                        .predicted = {},
                                        .is_cut = is_cut(pair.source, context) || is_cut(pair.target, context)}));
    }
    scorer.add(to_batch(to_rows(pairs, mark, context), run.device, context), rows);
    scorer.flush();
  }
}

void score_labelled(const LoadedRun& run, const ScoredFile& file, const std::function<void(const LineScore&)>& use) {
  const auto config = config_of(run, file);
  const auto& data = classification(config).data;
  const auto table = read_labelled_table(file.path, data);
  check_rows(table, columns_of(data), data.malformed_limit);
  const auto answers = class_answers(run);
  const auto& labels = run.codec.labels;
  const auto most_rows = static_cast<std::size_t>(evaluation_rows(context_of(config.model)));
  for (std::size_t first = 0; first < table.rows.size(); first += most_rows) {
    throw_if_stopped();
    const auto count = std::min(most_rows, table.rows.size() - first);
    std::vector<std::vector<std::int32_t>> texts;
    std::vector<LineScore> scores;
    for (const auto& row : std::span(table.rows).subspan(first, count)) {
      auto& score = scores.emplace_back(LineScore{.line = row.line, .tokens = 1, .label = row.fields[1]});
      try {
        texts.push_back(answers.encode(row.fields[0], score.is_cut));
      } catch (const Error& error) {
        fail_data("{}: {}", table.place(row), error.what());
      }
    }
    const auto predictions = predict(run, texts);
    for (std::size_t i = 0; i < count; ++i) {
      const auto known = std::ranges::find(labels, *scores[i].label);
      if (known == labels.end())
        fail_data("{}: the label {} is not among the {} of the training texts{}", table.place(table.rows[first + i]),
                  in_quotes(*scores[i].label), labels.size(), did_you_mean(*scores[i].label, labels));
      scores[i].log_probability =
          std::log(predictions[i].probabilities[static_cast<std::size_t>(known - labels.begin())]);
      scores[i].predicted = labels[predictions[i].label];
      use(scores[i]);
    }
  }
}

}  // namespace

FileTask task_of_file(const LoadedRun& run, const ScoredFile& file) {
  require_texts(run, file);
  const auto config = config_of(run, file);
  if (text_data_of(config.task) == nullptr)
    return {.task = make_task(config, /*offline=*/true, run.codec), .split = Split::test};
  const auto& data = *text_data_of(config.task);
  const auto dataset = std::make_shared<const TextDataset>(encode_whole(file.path, data, run.codec.tokenizer), data,
                                                           context_of(config.model), /*fewest_tokens=*/2);
  return {.task = text_task_over(config, dataset), .split = Split::validation};
}

void score_lines(const LoadedRun& run, const ScoredFile& file, const std::function<void(const LineScore&)>& use) {
  require_texts(run, file);
  const auto& task = run.experiment.config.task;
  if (is<MaskedLanguageModelConfig>(task))
    fail_usage("--per-line: task {} predicts hidden tokens, not a text", kind_of(task));
  if (is<ClassificationConfig>(task)) return score_labelled(run, file, use);
  is<SequenceToSequenceConfig>(task) ? score_pairs(run, file, use) : score_texts(run, file, use);
}

}  // namespace metaformer
