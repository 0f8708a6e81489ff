#include "baselines/comparison.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "baselines/accuracy_cache.h"
#include "data/token_rows.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

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
