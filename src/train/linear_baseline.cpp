#include "train/linear_baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <set>

#include "base/digest.h"
#include "base/download.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "config/data_config.h"
#include "config/model_config.h"
#include "config/writer.h"
#include "data/labelled.h"
#include "data/token_rows.h"
#include "ops/device.h"
#include "run/checkpoint.h"
#include "run/metrics_log.h"
#include "tasks/calibration.h"
#include "tasks/evaluation.h"
#include "tasks/linear_classifier.h"
#include "text/ngram_features.h"
#include "text/word_tokenizer.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t only_step = 1;

// Cost, smoothing and joiners were chosen by cross-validation over films within IMDb's training half.
constexpr LinearConfig reference_linear_config = {
    .ngrams = 2, .buckets = std::int64_t{1} << 22, .naive_bayes = true, .cost = 0.2};
const WordTokenizerOptions reference_word_options = {
    .vocabulary = 1 << 20, .min_count = 1, .lowercase = true, .joiners = "'/"};

// The fraction of texts in each held-out split whose label `predict` predicts correctly.
template <class Predict>
Scores accuracies(const LabelledSplits& splits, Predict predict) {
  Scores result;
  for (const auto split : held_out_splits) {
    const auto& texts = splits[split];
    if (texts.empty()) continue;
    const auto right = std::count_if(texts.begin(), texts.end(), [&](const auto& text) {
      throw_if_stopped();
      return predict(text) == text.label;
    });
    result.emplace_back(to_string(split), static_cast<double>(right) / static_cast<double>(texts.size()));
  }
  return result;
}

Scores linear_accuracies(const LabelledSplits& splits) {
  const auto& training = splits[Split::train];
  std::size_t bytes = 0;
  std::set<std::string> labels;
  for (const auto& text : training) {
    bytes += text.text.size();
    labels.insert(text.label);
  }
  // Few texts need few buckets, and each bucket costs time and memory.
  constexpr std::size_t few = 1 << 12;
  auto config = reference_linear_config;
  config.buckets = std::min(config.buckets, static_cast<std::int64_t>(std::bit_ceil(std::max(few, 2 * bytes))));
  const auto words = WordTokenizer::from_text(reference_word_options, joined_texts(training));
  const std::vector<std::string> names(labels.begin(), labels.end());
  const auto features = [&](const LabelledText& text) { return ngram_features(words.encode(text.text), config); };
  std::vector<LabelledFeatures> texts;
  for (const auto& text : training) {
    throw_if_stopped();
    texts.push_back({.features = features(text),
                     .label = std::lower_bound(names.begin(), names.end(), text.label) - names.begin()});
  }
  const auto weights = fit_linear_classifier(texts, std::ssize(names), config);
  return accuracies(splits, [&](const LabelledText& text) -> const std::string& {
    const auto logits = weights.logits(features(text));
    return names[static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())];
  });
}

// The accuracies that a network must beat. majority: the most frequent class of the training texts. linear: a linear
// model over uni- and bigrams of all lower-case words and punctuation marks, trained on the same texts as the network,
// whatever its tokens are. Without a test split there is no "test". Errors: as load_labelled_splits; Interrupted.
NamedScores compute_reference_accuracies(const LabelledDataConfig& config, bool offline) {
  fault_point("baselines", SIGTERM);
  log::info("baselines: reading the texts for a linear model over words");
  const auto splits = load_labelled_splits(config, offline);
  std::map<std::string, std::int64_t> counts;
  for (const auto& text : splits[Split::train]) ++counts[text.label];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto majority = accuracies(splits, [&](const LabelledText&) -> const std::string& { return most->first; });
  return {{"majority", majority}, {"linear", linear_accuracies(splits)}};
}

constexpr int format_version = 4;

// The key of the cache: everything that determines the baselines. Paths of the data are not part of it.
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

Json entry_of(const Json& key, const Json& baselines) {
  Json entry = {{"key", key}, {"baselines", baselines}};
  entry["sha256"] = sha256(entry.dump());
  return entry;
}

// compute_reference_accuracies with a cache in cache_folder()/baselines, unless data.cache is off. The key of the cache
// is made from the `description` of the data, with its digests, and the keys data.*. A damaged entry is ignored with a
// warning and computed again.
NamedScores cached_reference_accuracies(const ExperimentConfig& config, const Json& description, bool offline) {
  auto data = classification(config).data;
  data.extra_path.reset();  // the baselines use only the given labels
  const auto cache = data.cache ? cache_folder() : std::nullopt;
  if (!cache) return compute_reference_accuracies(data, offline);
  const auto key = key_of(config, description);
  const auto file = *cache / "baselines" / (sha256(json_text(key)) + ".json");
  NamedScores accuracies;
  std::error_code ignored;
  if (fs::exists(file, ignored)) {
    constexpr std::uintmax_t largest = 1 << 20;
    const auto damage = damage_of([&] {
      const auto json = parse_json<Json>(read_file(file, largest, ExitCode::failure));
      const auto baselines = json.is_object() ? json.value("baselines", Json()) : Json();
      const auto refuse = [&](const std::string&, std::string_view) {
        throw Error(ExitCode::failure, file.string() + ": damaged");
      };
      if (!(json == entry_of(key, baselines))) refuse("", "");  // invalid JSON is neither equal nor unequal
      read_member(json, "baselines", accuracies, refuse);
    });
    if (!damage.empty()) {
      log::warning("{}; computed anew", damage);
      accuracies.clear();
    }
  }
  if (!accuracies.empty()) return accuracies;
  accuracies = compute_reference_accuracies(data, offline);
  try {
    fs::create_directories(file.parent_path());
    write_file_atomically(file, json_text(entry_of(key, json_of(accuracies)), 1) + "\n");
  } catch (const std::exception& error) {
    log::warning("the baselines could not be kept for later runs: {}", error.what());
  }
  return accuracies;
}

}  // namespace

RunSummary train_linear(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device) {
  const auto& config = experiment.config;
  const auto start = std::chrono::steady_clock::now();
  const auto& linear = std::get<LinearConfig>(config.model);
  const auto texts = training_features(*task.batches, [&](const Batch& batch) { return row_features(batch, linear); });
  log::info("fitting the linear model to {} texts at once", texts.size());
  LinearModel model(linear, fit_linear_classifier(texts, std::ssize(task.codec->labels), linear));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  model.to(device);
  MetricsLog metrics(run, LogPosition{});
  metrics.write_config(config);
  const Scoring scoring{model, task, config.train.precision, device};
  std::optional<double> temperature;
  const auto report_split = [&](Split split) -> TestReport {
    if (split == Split::test) return report_test(scoring, config.train, run, temperature);
    const auto sums = score_split(scoring, split);
    if (split == Split::validation) {
      temperature = fit_temperature(task, sums);
      write_confusion(run, task, split, sums);
      write_predictions(run, config.train, task, split, sums);
    }
    return {.evaluation = report_of(task, split, sums), .tables = {}};
  };
  const auto evaluate = [&](Split split) {
    auto [report, tables] = report_split(split);
    metrics.write(only_step, std::string(to_string(split)), json_of(report));
    log::info("{}: {}", to_string(split), headline_of(task, report));
    for (const auto& line : tables) log::info("  {}", line);
    return report;
  };
  const auto training = evaluate(Split::train), validation = evaluate(Split::validation);
  const BestSoFar best = {only_step, validation.at("loss"), task.measures->selection_error(validation)};
  const Progress progress{.step = only_step,
                          .best = best,
                          .last_train_loss = training.at("loss"),
                          .train_seconds = seconds.count(),
                          .evaluated_step = only_step,
                          .validation = validation,
                          .temperature = temperature};
  metrics.sync();
  save_checkpoint(run, progress, model.tensors(), {}, *task.codec, config.train.keep_checkpoints);
  link_latest(run.path());
  auto summary = summary_of(run, progress);
  summary.temperature = temperature;
  if (task.batches->has(Split::test)) summary.test = evaluate(Split::test);
  summary.parameters = model.parameters();
  summary.peak_memory_bytes = peak_memory_bytes(device);
  return summary;
}

BaselineComparison compare_with_baselines(const ExperimentConfig& config, const Json& description,
                                          const Scores& accuracies, bool offline, const std::string& name) {
  if (!is<ClassificationConfig>(config.task) || !is<TransformerConfig>(config.model) ||
      !classification(config).baselines || config.train.overfit_batch)
    return {};
  try {
    auto baselines = cached_reference_accuracies(config, description, offline);
    auto table = baseline_table(baselines, accuracies, name);
    return {.accuracies = std::move(baselines), .table = std::move(table)};
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    log::warning("no baselines: {}", error.what());
    return {};
  }
}

std::vector<std::string> baseline_table(NamedScores baselines, const Scores& accuracies, const std::string& name) {
  if (std::any_of(held_out_splits.begin(), held_out_splits.end(),
                  [&](Split split) { return value_of(accuracies, to_string(split)).has_value(); }))
    baselines.emplace_back(name, accuracies);
  std::vector<std::string> lines = {fmt::format("{:<12} {:>10} {:>10}", "accuracy", "validation", "test")};
  for (const auto& [baseline, by_split] : baselines) {
    lines.push_back(fmt::format("{:<12}", baseline));
    for (const auto split : held_out_splits) {
      const auto value = value_of(by_split, to_string(split));
      lines.back() += value ? fmt::format(" {:>9.2f}%", 100 * *value) : fmt::format(" {:>10}", "-");
    }
  }
  return lines;
}

}  // namespace metaformer
