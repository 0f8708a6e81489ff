#include "train/metrics_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "core/error.h"
#include "core/files.h"
#include "core/json_text.h"

namespace metaformer {

namespace {

bool belongs_to_evaluation(const nlohmann::json& line) {
  const auto name = line.value("split", nlohmann::json());
  const auto split = name.is_string() ? name.get<std::string>() : "";
  return split.starts_with("validation") || split == "train_estimate";
}

// Of the end of a training that now goes on.
bool belongs_to_end(const nlohmann::json& line) { return line.value("split", nlohmann::json()) == "test"; }

// The lines whose step is not after `last_step`; a half-written last line is dropped too.
std::string lines_up_to(const std::string& text, std::int64_t last_step, bool evaluated) {
  std::string kept;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const auto json = parse_json(line);
    const bool valid = json.is_object() && json.contains("step") && json["step"].is_number_integer();
    if (!valid) continue;
    const auto step = json["step"].get<std::int64_t>();
    const bool unfinished = step == last_step && !evaluated && belongs_to_evaluation(json);
    if (step <= last_step && !unfinished && !belongs_to_end(json)) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(const RunDirectory& run, std::int64_t first_step, bool evaluated)
    : path_(run.metrics_file()), tensorboard_(run.path()) {
  constexpr std::uintmax_t largest = std::uintmax_t{4} << 30;
  const auto earlier = std::filesystem::exists(path_) ? read_file(path_, largest, ExitCode::failure) : std::string();
  write_file_atomically(path_, lines_up_to(earlier, first_step, evaluated));
  file_.open(path_, std::ios::app | std::ios::binary);
}

void MetricsLog::sync() const { sync_file(path_); }

void MetricsLog::write(std::int64_t step, const std::string& split, const nlohmann::ordered_json& metrics) {
  nlohmann::ordered_json line = {{"step", step}, {"split", split}};
  line.update(metrics);
  file_ << line.dump() << '\n' << std::flush;
  if (!file_) throw Error(ExitCode::failure, fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  add_scalars(split, metrics, step);
  tensorboard_.flush();
}

void MetricsLog::add_scalars(const std::string& prefix, const nlohmann::ordered_json& metrics, std::int64_t step) {
  for (const auto& [name, value] : metrics.items()) {
    if (value.is_number()) tensorboard_.add_scalar(prefix + "/" + name, value.get<double>(), step);
    if (value.is_object()) add_scalars(prefix + "/" + name, value, step);
  }
}

}  // namespace metaformer
