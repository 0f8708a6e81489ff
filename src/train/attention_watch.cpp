#include "train/attention_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "config/writer.h"
#include "ops/device.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

// Options of mixers that help, and that are not set: "model.mixer.qk_norm=true".
void add_remedies(const Json& section, const std::string& path, std::vector<std::string>& remedies) {
  if (!section.is_object()) return;
  if (section.value("qk_norm", Json()) == false) remedies.push_back(path + ".qk_norm=true");
  if (section.value("values", Json()) == "shared") remedies.push_back(path + ".values=own");
  for (const auto& [name, part] : section.items()) add_remedies(part, fmt::format("{}.{}", path, name), remedies);
}

std::string describe_remedies(const ExperimentConfig& config) {
  std::vector<std::string> remedies;
  add_remedies(config_to_json(config).at("model"), "model", remedies);
  remedies.emplace_back("a lower train.learning_rate");
  return join_alternatives(remedies);
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void warn(const AttentionCollapse& collapse, const ExperimentConfig& config) {
  log::warning("step {}: attention has collapsed to {} (mean entropy of all heads: {:.2f} of its maximum): try {}",
               collapse.step, collapse.kind == CollapseKind::one_token ? "one token" : "the mean of all visible tokens",
               collapse.entropy, describe_remedies(config));
}

}  // namespace

CollapseKind collapsed(const std::vector<double>& entropies) {
  if (entropies.empty()) return CollapseKind::none;
  const auto all = [&](auto holds) { return std::all_of(entropies.begin(), entropies.end(), holds); };
  const bool low = all([](double entropy) { return entropy < least_greatest_entropy; });
  if (low && mean_of(entropies) < least_mean_entropy) return CollapseKind::one_token;
  const bool uniform = all([](double entropy) { return entropy >= least_entropy_of_uniform; });
  return uniform ? CollapseKind::uniform : CollapseKind::none;
}

bool is_look_due(std::int64_t step, std::int64_t steps) {
  const auto looks_until = [&](std::int64_t done) { return done * looks_in_training / steps; };
  return step > 0 && looks_until(step) > looks_until(step - 1);
}

void AttentionWatch::look(Progress& progress) {
  if (progress.collapse || !has_scores_) return;
  try {
    const auto entropies = attention_entropies(diagnostics_.measure(StreamDiagnostics::Gradients::none));
    has_scores_ = !entropies.empty();
    note(entropies, progress);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    has_scores_ = false;
  }
}

bool AttentionWatch::stays_uniform(CollapseKind kind, double entropy, Progress& progress) const {
  if (!is_look_due(progress.step, config_.train.steps)) return false;
  const bool counts = kind == CollapseKind::uniform && progress.step > warmup_steps(config_.train.schedule);
  const double before = std::exchange(progress.uniform_entropy, counts ? entropy : 0);
  return counts && before > 0 && before - entropy < learned_between_looks;
}

void AttentionWatch::note(const std::vector<double>& entropies, Progress& progress) const {
  if (progress.collapse || entropies.empty()) return;
  const auto kind = collapsed(entropies);
  const double entropy = mean_of(entropies);
  if (kind != CollapseKind::one_token && !stays_uniform(kind, entropy, progress)) return;
  progress.collapse = {.step = progress.step, .kind = kind, .entropy = entropy};
  warn(*progress.collapse, config_);
}

}  // namespace metaformer
