#include "run/metrics_log.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "config/writer.h"

namespace metaformer {

namespace {

bool is_kept(const nlohmann::json& line, const LogPosition& position) {
  const auto name = line.value("split", nlohmann::json());
  const auto split = name.is_string() ? name.get<std::string>() : "";
  const auto step = line["step"].get<std::int64_t>();
  if (split == "rollback") return line.value("rollbacks", nlohmann::json()) <= position.rollbacks;
  if (step > position.step || split == "test") return false;  // the test is the end's, and is made again
  if (split == "validation" && position.past_end) return false;
  const bool of_evaluation = split.starts_with("validation") || split == "train_estimate";
  return step < position.step || position.evaluated || !of_evaluation;
}

struct KeptLines {
  std::string text;
  std::int64_t last_step = 0;                                             // of the last line
  std::int64_t first_dropped = std::numeric_limits<std::int64_t>::max();  // the lowest step of those that are dropped
};

// A half-written last line is dropped too.
KeptLines kept_lines(const std::string& text, const LogPosition& position) {
  KeptLines kept;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const auto json = parse_json(line);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    const auto step = json["step"].get<std::int64_t>();
    if (is_kept(json, position)) {
      kept.text += line + "\n";
      kept.last_step = step;
    } else {
      kept.first_dropped = std::min(kept.first_dropped, step);
    }
  }
  return kept;
}

// The kept lines of that step and later ones, as objects.
template <class Use>
void for_lines_from(std::int64_t first_step, const std::string& lines, Use use) {
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const auto json = parse_json(line);
    if (const std::int64_t step = json["step"]; step >= first_step) use(nlohmann::ordered_json(json), step);
  }
}

std::string read_lines(const std::filesystem::path& file) {
  constexpr std::uintmax_t largest = std::uintmax_t{4} << 30;
  return std::filesystem::exists(file) ? read_file(file, largest, ExitCode::failure) : std::string();
}

// {"model": {"layers": 4}} as {"model.layers": 4}.
void flatten(const nlohmann::ordered_json& values, const std::string& prefix, nlohmann::ordered_json& flat) {
  for (const auto& [name, value] : values.items()) {
    if (value.is_object()) {
      flatten(value, prefix + name + ".", flat);
    } else if (!value.is_null()) {
      flat[prefix + name] = value;
    }
  }
}

// TensorBoard renders Markdown, where indented lines stay as they are.
std::string as_code(const std::string& text) {
  std::istringstream stream(text);
  std::string code;
  for (std::string line; std::getline(stream, line);) code += "    " + line + "\n";
  return code;
}

}  // namespace

MetricsLog::MetricsLog(const RunDirectory& run, const LogPosition& position)
    : path_(run.metrics_file()), samples_path_(run.samples_file()), first_step_(position.step) {
  tensorboard_.emplace(run.path());
  const auto metrics = kept_lines(read_lines(path_), position),
             samples = kept_lines(read_lines(samples_path_), position);
  write_file_atomically(path_, metrics.text);
  file_.emplace(path_);
  if (std::filesystem::exists(samples_path_)) write_file_atomically(samples_path_, samples.text);
  last_sampled_step_ = samples.last_step;
  // TensorBoard can only forget all of a step and of later ones; lines of them that are kept are written again.
  const auto forgotten = std::min({position.step, metrics.first_dropped, samples.first_dropped});
  tensorboard_->start_session(forgotten);
  for_lines_from(forgotten, metrics.text, [&](nlohmann::ordered_json line, std::int64_t step) {
    const auto split = line.value("split", nlohmann::ordered_json());
    line.erase("step");
    if (split.is_string()) add_scalars(split, line, step);
  });
  for_lines_from(forgotten, samples.text, [&](const auto& sample, std::int64_t step) { add_sample(sample, step); });
  tensorboard_->flush();
}

void MetricsLog::write_config(const ExperimentConfig& config) {
  if (!tensorboard_) return;
  tensorboard_->add_text("config", as_code(config_to_yaml(config)), first_step_);
  nlohmann::ordered_json values;
  flatten(config_to_json(config), "", values);
  tensorboard_->add_hyper_parameters(values, first_step_);
  tensorboard_->flush();
}

void MetricsLog::sync() const {
  if (!tensorboard_) return;
  file_->sync();
  if (samples_file_) samples_file_->sync();
}

void MetricsLog::write(std::int64_t step, const std::string& split, const nlohmann::ordered_json& measures) {
  if (!tensorboard_) return;
  nlohmann::ordered_json line = {{"step", step}, {"split", split}};
  line.update(measures);
  file_->write(line.dump() + "\n");
  add_scalars(split, measures, step);
  tensorboard_->flush();
}

void MetricsLog::write_sample(std::int64_t step, const nlohmann::ordered_json& sample) {
  if (!tensorboard_) return;
  nlohmann::ordered_json line = {{"step", step}};
  line.update(sample);
  const auto text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (!samples_file_) samples_file_.emplace(samples_path_);
  samples_file_->write(text + "\n");
  last_sampled_step_ = step;
  add_sample(sample, step);
  tensorboard_->flush();
}

void MetricsLog::add_sample(const nlohmann::ordered_json& sample, std::int64_t step) {
  if (const auto text = sample.value("text", nlohmann::ordered_json()); text.is_string())
    tensorboard_->add_text("sample", as_code(text.get<std::string>()), step);
}

void MetricsLog::add_scalars(const std::string& prefix, const nlohmann::ordered_json& measures, std::int64_t step) {
  for (const auto& [name, value] : measures.items()) {
    if (value.is_number()) tensorboard_->add_scalar(prefix + "/" + name, value.get<double>(), step);
    if (value.is_object()) add_scalars(prefix + "/" + name, value, step);
  }
}

}  // namespace metaformer
