#include "baselines/accuracy_cache.h"

#include <algorithm>
#include <array>

#include "base/cache_folder.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "baselines/reference_accuracies.h"
#include "config/writer.h"
#include "run/environment.h"
#include "text/log_count_ratios.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

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

}  // namespace

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

}  // namespace metaformer
