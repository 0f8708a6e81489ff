#include "train/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "config/loader.h"
#include "config/paths.h"
#include "config/writer.h"
#include "run/moved_data.h"
#include "run/run_directory.h"
#include "text/make_tokenizer.h"
#include "train/initial_weights.h"
#include "train/optim/schedule.h"
#include "train/trainer.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char *tokenizer_path = "data.tokenizer.path", *initial_weights_path = "train.init_from";

// The first key whose value differs, but for those that may differ.
std::string first_difference(const Json& before, const Json& now, const std::vector<std::string>& free,
                             const std::string& prefix = "") {
  for (const auto& [key, value] : now.items()) {
    const auto path = prefix + key;
    const auto earlier = before.value(key, Json());
    if (value.is_object() && earlier.is_object()) {
      if (auto inner = first_difference(earlier, value, free, path + "."); !inner.empty()) return inner;
    } else if (value != earlier && std::find(free.begin(), free.end(), path) == free.end()) {
      return fmt::format("{} is {} now and was {}", path, json_text(value), json_text(earlier));
    }
  }
  return "";
}

// Data may lie elsewhere, which require_moved_data checks, and so may the tokenizer and the weights that the training
// began with.
void require_same_experiment(const RunDirectory& run, const ExperimentConfig& before, const ExperimentConfig& now) {
  std::vector<std::string> free = {"train.steps",
                                   "train.eval_interval",
                                   "train.checkpoint_interval",
                                   "train.log_interval",
                                   "train.diagnostics_interval",
                                   "train.keep_checkpoints",
                                   "train.patience",
                                   tokenizer_path,
                                   initial_weights_path};
  const auto moved = moved_data(before, now);
  free.insert(free.end(), moved.begin(), moved.end());
  const auto difference = first_difference(config_to_json(before), config_to_json(now), free);
  if (!difference.empty())
    throw Error(
        ExitCode::usage,
        fmt::format("--resume {}: {}; only steps, intervals, patience, retention and the paths of the same data "
                    "may change",
                    run.path().string(), difference));
}

// What a training has begun with, at another path.
void require_same(const EarlierRun& earlier, const std::string& key, const PathText& path, const std::string& found,
                  const std::string& trained) {
  if (found != trained)
    throw Error(ExitCode::usage, fmt::format("--resume {}: {}={}: not what it was trained with: its SHA-256 is {} and "
                                             "was {}",
                                             earlier.run.path().string(), key, path, found, trained));
}

void require_same_tokenizer(const EarlierRun& earlier, const ExperimentConfig& now) {
  const auto path_of = [](const ExperimentConfig& config) {
    const auto* data = data_of(config);
    const auto* pretrained = data == nullptr ? nullptr : std::get_if<PretrainedTokenizerOptions>(&data->tokenizer);
    return pretrained == nullptr ? PathText() : pretrained->path;
  };
  const auto digest = [](const Tokenizer& tokenizer) { return sha256(tokenizer.to_json().dump()); };
  const auto path = path_of(now);
  if (path == path_of(earlier.config)) return;
  require_same(earlier, tokenizer_path, path, digest(*read_pretrained_tokenizer(path)),
               earlier.checkpoint ? digest(*earlier.checkpoint->codec.tokenizer) : "not known");
}

void require_same_initial_weights(const EarlierRun& earlier, const ExperimentConfig& now) {
  const auto& path = now.train.init_from;
  if (path == earlier.config.train.init_from) return;
  constexpr std::uintmax_t largest = 1 << 26;
  const auto file = earlier.run.initial_weights_file();
  const auto trained =
      std::filesystem::exists(file) ? parse_json(read_file(file, largest, ExitCode::failure)) : nlohmann::json();
  const auto digest = trained.is_object() ? trained.value("sha256", nlohmann::json()) : nlohmann::json();
  require_same(earlier, initial_weights_path, path.value_or(PathText("null")),
               path ? read_initial_weights(with_seed(*path, now.train)).digest : "none",
               digest.is_string() ? digest.get<std::string>() : "not known");
}

// What is done cannot be undone. A linear model has its one step whatever train.steps says.
void require_reachable(const RunDirectory& run, const ExperimentConfig& config, const Progress& progress) {
  if (config.train.steps < progress.step)
    throw Error(ExitCode::usage, fmt::format("--resume {}: train.steps is {}, and the run has done {} steps; give at "
                                             "least that many",
                                             run.path().string(), config.train.steps, progress.step));
}

}  // namespace

std::optional<EarlierRun> find_earlier_run(const ExperimentConfig& config, const std::filesystem::path& out,
                                           bool resume) {
  if (resume && out.empty()) throw Error(ExitCode::usage, "--resume needs --out: the run to go on with");
  if (!resume || RunDirectory::is_free(out)) return std::nullopt;
  EarlierRun earlier{.run = RunDirectory::open(out, "--out"), .config = {}, .lock = {}, .checkpoint = {}};
  earlier.lock = std::make_unique<FileLock>(earlier.run.lock_file());
  earlier.config = load_run_experiment(earlier.run.config_file()).config;
  require_same_experiment(earlier.run, earlier.config, config);
  earlier.run.remove_left_overs();
  mend_checkpoints(earlier.run);
  earlier.checkpoint = load_newest_checkpoint(earlier.run);
  require_same_tokenizer(earlier, config);
  require_same_initial_weights(earlier, config);
  if (earlier.checkpoint) require_reachable(earlier.run, config, earlier.checkpoint->progress);
  return earlier;
}

void require_same_data(const EarlierRun& earlier, const ExperimentConfig& config, const Task& task) {
  const auto description = task.data->description();
  require_moved_data(earlier.run, config, moved_data(earlier.config, config), description);
  if (has_same_data(earlier.run, description)) return;
  const auto difference = differing_digest(earlier.run, description);
  throw Error(ExitCode::usage,
              fmt::format("--resume {}: the data are not those it was trained on, which its environment.json names{}{}",
                          earlier.run.path().string(), difference.empty() ? "" : ": ", difference));
}

void describe_schedule(const ExperimentConfig& before, const ExperimentConfig& now, const Progress& progress) {
  const auto steps_before = before.train.steps, steps = now.train.steps;
  if (is<LinearConfig>(now.model) || steps_before == steps) return;
  const auto rate = [&](const ExperimentConfig& config, std::int64_t step) {
    return make_schedule(config.train, width_of(config.model))->rate(step) * rollback_factor(config.train, progress);
  };
  const auto next = progress.step;
  const double earlier = rate(before, next), here = rate(now, next);
  const auto course = fmt::format(
      "train.steps was {} and is {}; the {} schedule continues at step {} with learning rate {:.3g}{} and ends at step "
      "{} with {:.3g}",
      steps_before, steps, kind_of(now.train.schedule), next, here,
      here == earlier ? ", as before," : fmt::format(", where it was {:.3g} before,", earlier), steps,
      rate(now, steps - 1));
  here == earlier ? log::write_info(course) : log::write_warning(course);
}

}  // namespace metaformer
