#include "train/linear_baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/download.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "config/data_config.h"
#include "config/experiment_config.h"
#include "config/model_config.h"
#include "config/writer.h"
#include "data/labelled.h"
#include "data/token_rows.h"
#include "ops/device.h"
#include "run/checkpoint.h"
#include "run/metrics_log.h"
#include "tasks/embedding_scale.h"
#include "tasks/evaluation.h"
#include "tasks/linear_classifier.h"
#include "text/ngram_features.h"
#include "text/word_tokenizer.h"
#include "train/evaluator.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t only_step = 1;

LinearModel fit(const LinearConfig& config, const Task& task) {
  const auto texts = training_features(*task.batches, [&](const Batch& batch) { return row_features(batch, config); });
  log::info("fitting the linear model to {} texts at once", texts.size());
  const auto classes = static_cast<std::int64_t>(task.codec->labels.size());
  return {config, fit_linear_classifier(texts, classes, config)};
}

Progress progress_after(const Task& task, const Json& training, const Json& validation, double seconds) {
  Progress progress{.step = only_step, .best = {}};
  progress.best = BestSoFar{only_step, validation.at("loss").get<double>(), task.metrics->selection_error(validation)};
  progress.last_train_loss = training.at("loss").get<double>();
  progress.train_seconds = seconds;
  progress.evaluated_step = only_step;
  progress.validation = validation;
  return progress;
}

}  // namespace

RunSummary train_linear(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device) {
  const auto& config = experiment.config;
  const auto start = std::chrono::steady_clock::now();
  auto model = fit(std::get<LinearConfig>(config.model), task);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  model.to(device);
  MetricsLog metrics(run, LogPosition{});
  metrics.write_config(config);
  const Scoring scoring{model, task, config.train.precision, device};
  const auto report_split = [&](Split split) {
    const auto sums = score_split(scoring, split);
    if (split == Split::validation) write_confusion(run, task, split, sums);
    return report_of(task, split, sums);
  };
  const auto evaluate = [&](Split split) {
    auto result = split == Split::test ? report_test(scoring, config.train, run) : report_split(split);
    metrics.write(only_step, std::string(to_string(split)), result);
    log::info("{}: {}", to_string(split), headline_of(task, result));
    return result;
  };
  const auto training = evaluate(Split::train), validation = evaluate(Split::validation);
  const auto progress = progress_after(task, training, validation, seconds.count());
  metrics.sync();
  save_checkpoint(run, progress, model.tensors(), {}, *task.codec, config.train.keep_checkpoints);
  link_latest(run.path());
  return {.steps = progress.step,
          .train_loss = progress.last_train_loss,
          .val_loss = progress.best->loss,
          .best_val_loss = progress.best->loss,
          .best_val_error = progress.best->error,
          .best_step = progress.best->step,
          .validation = validation,
          .test = task.batches->has(Split::test) ? evaluate(Split::test) : Json(),
          .stopped_early = false,
          .parameters = model.parameters(),
          .mixer_parameters = 0,
          .stepwise = std::nullopt,
          .peak_memory_bytes = peak_memory_bytes(device),
          .train_seconds = progress.train_seconds,
          .run = std::filesystem::absolute(run.path()).lexically_normal().string(),
          .baselines = {}};
}

namespace {

// Cost, smoothing and joiners were chosen by cross-validation over films within IMDb's training half.
constexpr LinearConfig reference_linear_config = {
    .ngrams = 2, .buckets = std::int64_t{1} << 22, .naive_bayes = true, .cost = 0.2};
const WordTokenizerOptions reference_word_options = {
    .vocabulary = 1 << 20, .min_count = 1, .lowercase = true, .joiners = "'/"};

std::map<std::string, std::int64_t> number_labels(const std::vector<LabelledText>& texts) {
  std::map<std::string, std::int64_t> labels;
  for (const auto& text : texts) labels.try_emplace(text.label);
  std::int64_t next = 0;
  for (auto& [name, number] : labels) number = next++;
  return labels;
}

// The fraction of each held-out split's texts whose label is the one that `predict` says.
template <class Predict>
Json accuracies(const LabelledSplits& splits, Predict predict) {
  Json result;
  for (const auto split : held_out_splits) {
    const auto& texts = splits[split];
    if (texts.empty()) continue;
    const auto right = std::count_if(texts.begin(), texts.end(), [&](const auto& text) {
      throw_if_stopped();
      return predict(text) == text.label;
    });
    result[std::string(to_string(split))] = static_cast<double>(right) / static_cast<double>(texts.size());
  }
  return result;
}

Json majority_accuracies(const LabelledSplits& splits) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& text : splits[Split::train]) ++counts[text.label];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return accuracies(splits, [&](const LabelledText&) -> const std::string& { return most->first; });
}

// No more buckets than few texts need: every one costs time and memory.
LinearConfig config_for(const std::vector<LabelledText>& texts) {
  constexpr std::size_t few = 1 << 12;
  std::size_t bytes = 0;
  for (const auto& text : texts) bytes += text.text.size();
  auto config = reference_linear_config;
  config.buckets = std::min(config.buckets, static_cast<std::int64_t>(std::bit_ceil(std::max(few, 2 * bytes))));
  return config;
}

Json linear_accuracies(const LabelledSplits& splits) {
  const auto& training = splits[Split::train];
  const auto config = config_for(training);
  const auto words = WordTokenizer::from_text(reference_word_options, joined_texts(training));
  const auto labels = number_labels(training);
  std::vector<std::string> names;
  for (const auto& [name, number] : labels) names.push_back(name);
  const auto features = [&](const LabelledText& text) { return ngram_features(words.encode(text.text), config); };
  std::vector<LabelledFeatures> texts;
  for (const auto& text : training) {
    throw_if_stopped();
    texts.push_back({.features = features(text), .label = labels.at(text.label)});
  }
  const auto weights = fit_linear_classifier(texts, static_cast<std::int64_t>(names.size()), config);
  return accuracies(splits, [&](const LabelledText& text) -> const std::string& {
    const auto logits = weights.logits(features(text));
    return names[static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())];
  });
}

// The accuracies that a network must beat. majority: the most frequent class of the training texts. linear: a linear
// model over uni- and bigrams of all lower-case words and punctuation marks, trained on the same texts as the network,
// whatever its tokens are. Without a test split there is no "test". Errors: as load_labelled_splits; Interrupted.
Json compute_reference_accuracies(const LabelledDataConfig& config, bool offline) {
  stop_point("baselines");
  log::info("baselines: reading the texts for a linear model over words");
  const auto splits = load_labelled_splits(config, offline);
  return {{"majority", majority_accuracies(splits)}, {"linear", linear_accuracies(splits)}};
}

constexpr int format_version = 4;
constexpr std::array baseline_names = {"majority", "linear"};

// All that the baselines follow from. Where the data lie is no part of it.
Json key_of(const ExperimentConfig& config, const Json& description) {
  auto data = config_to_json(config).at("data");
  auto sources = without_paths(description);
  sources.erase("extra");
  for (const auto* key : {"path", "validation_path", "test_path", "extra_path", "cache", "tokenizer"}) data.erase(key);
  return {{"format", format_version},
          {"description", sources},
          {"data", data},
          {"linear",
           {{"ngrams", reference_linear_config.ngrams},
            {"buckets", reference_linear_config.buckets},
            {"cost", reference_linear_config.cost},
            {"smoothing", log_count_smoothing},
            {"vocabulary", reference_word_options.vocabulary},
            {"joiners", reference_word_options.joiners}}}};
}

bool is_accuracy(const Json& value) { return value.is_number() && value >= 0 && value <= 1; }

bool are_baselines(const Json& json) {
  if (!json.is_object()) return false;
  return std::all_of(baseline_names.begin(), baseline_names.end(), [&](const char* name) {
    const auto accuracies = json.value(name, Json());
    return accuracies.is_object() && accuracies.contains("validation") &&
           std::all_of(accuracies.begin(), accuracies.end(), is_accuracy);
  });
}

Json entry_of(const Json& key, const Json& baselines) {
  Json entry = {{"key", key}, {"baselines", baselines}};
  entry["sha256"] = sha256(entry.dump());
  return entry;
}

// Nothing when there is no such file, or it is not what was written for this key.
Json read_cached(const fs::path& file, const Json& key) {
  constexpr std::uintmax_t largest = 1 << 20;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  try {
    const auto json = parse_json<Json>(read_file(file, largest, ExitCode::failure));
    const auto baselines = json.is_object() ? json.value("baselines", Json()) : Json();
    if (are_baselines(baselines) && json == entry_of(key, baselines)) return baselines;
    log::warning("{}: damaged; computed anew", file.string());
  } catch (const Error& error) {
    log::warning("{}; computed anew", error.what());
  }
  return {};
}

void write_cached(const fs::path& file, const Json& key, const Json& baselines) {
  try {
    fs::create_directories(file.parent_path());
    write_file_atomically(file, json_text(entry_of(key, baselines), 1) + "\n");
  } catch (const std::exception& error) {
    log::warning("the baselines could not be kept for later runs: {}", error.what());
  }
}

// compute_reference_accuracies, kept in cache_folder()/baselines by what they follow from (`description` of the data,
// with its digests; data.*), unless data.cache is off. Ignores a damaged entry with a warning and computes it again.
Json cached_reference_accuracies(const ExperimentConfig& config, const Json& description, bool offline) {
  auto data = classification(config).data;
  data.extra_path.reset();  // the baselines have only the labels that were given
  const auto cache = data.cache ? cache_folder() : std::nullopt;
  if (!cache) return compute_reference_accuracies(data, offline);
  const auto key = key_of(config, description);
  const auto file = *cache / "baselines" / (sha256(json_text(key)) + ".json");
  auto accuracies = read_cached(file, key);
  if (accuracies.is_null()) {
    accuracies = compute_reference_accuracies(data, offline);
    write_cached(file, key, accuracies);
  }
  return accuracies;
}

bool has_baselines(const ExperimentConfig& config) {
  return is<ClassificationConfig>(config.task) && is<TransformerConfig>(config.model) &&
         classification(config).baselines && !config.train.overfit_batch;
}

}  // namespace

BaselineComparison compare_with_baselines(const ExperimentConfig& config, const Json& description,
                                          const Json& metrics_by_split, bool offline) {
  if (!has_baselines(config)) return {};
  try {
    auto accuracies = cached_reference_accuracies(config, description, offline);
    auto table = baseline_table(accuracies, metrics_by_split);
    return {.accuracies = std::move(accuracies), .table = std::move(table)};
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    log::warning("no baselines: {}", error.what());
    return {};
  }
}

std::vector<std::string> baseline_table(const Json& baselines, const Json& metrics_by_split) {
  Json accuracies = baselines;
  for (const auto split : held_out_splits) {
    const std::string name(to_string(split));
    if (!metrics_by_split.contains(name) || metrics_by_split[name].is_null()) continue;
    accuracies["this network"][name] = metrics_by_split[name].at("accuracy");
  }
  std::vector<std::string> lines = {fmt::format("{:<12} {:>10} {:>10}", "accuracy", "validation", "test")};
  for (const auto& [name, by_split] : accuracies.items()) {
    lines.push_back(fmt::format("{:<12}", name));
    for (const auto split : held_out_splits) {
      const std::string column(to_string(split));
      lines.back() += by_split.contains(column) ? fmt::format(" {:>9.2f}%", 100 * by_split[column].get<double>())
                                                : fmt::format(" {:>10}", "-");
    }
  }
  return lines;
}

}  // namespace metaformer
