#include "run/checkpoint_meta.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t format_version = 2;

// The fields of meta.json, in their order.
template <class Visitor, class AnyProgress>
void visit(Visitor& field, AnyProgress& progress) {
  field("step", progress.step);
  field("best", progress.best);
  field("loss_sum", progress.loss_sum);
  field("loss_count", progress.loss_count);
  field("last_train_loss", progress.last_train_loss);
  field("train_seconds", progress.train_seconds);
  field("evaluated_step", progress.evaluated_step);
  field("validation", progress.validation);
  field("evaluations_since_best", progress.evaluations_since_best);
  field("rollbacks", progress.rollbacks);
  field("rollback_step", progress.rollback_step);
  field("scheduled", progress.scheduled);
  field("spikes", progress.spikes);
  field("clipped_steps", progress.clipped_steps);
  field("clipped_count", progress.clipped_count);
  field("skipped_steps", progress.skipped_steps);
  field("uniform_entropy", progress.uniform_entropy);
  field("attention_collapse", progress.collapse);
  field("startup_seconds", progress.startup_seconds);
  field("wall_seconds", progress.wall_seconds);
  field("evaluation_seconds", progress.evaluation_seconds);
  field("checkpoint_seconds", progress.checkpoint_seconds);
}

struct ProgressWriter {
  Json json = {{"format_version", format_version}};

  void operator()(const char* key, std::int64_t value) { json[key] = value; }
  void operator()(const char* key, double value) { json[key] = value; }
  void operator()(const char* key, bool value) { json[key] = value; }
  void operator()(const char* key, const Json& metrics) { json[key] = without_tables(metrics); }
  void operator()(const char* key, const std::optional<BestSoFar>& best) {
    json[key] = best ? Json{{"step", best->step}, {"loss", best->loss}, {"error", best->error}} : Json(nullptr);
  }
  void operator()(const char* key, const SpikeState& spikes) {
    json[key] = {{"seen", spikes.seen}, {"mean", spikes.mean}, {"variance", spikes.variance}, {"count", spikes.count}};
  }
  void operator()(const char* key, const std::optional<AttentionCollapse>& collapse) {
    if (collapse) json[key] = to_json(*collapse);
  }
};

class MetaReader {
 public:
  MetaReader(const std::string& text, const std::string& source) : source_(source), json_(parse_json<Json>(text)) {}

  CheckpointMeta read() {
    if (!json_.is_object()) fail("damaged: not a JSON object");
    const auto version = whole_number(json_, "format_version");
    if (version > format_version)
      throw NewerFormat(ExitCode::failure,
                        fmt::format("{}: written by a newer metaformer (format {}; this one reads up to {})", source_,
                                    version, format_version));
    if (version < format_version) fail_at("format_version", fmt::format("{}", format_version));
    check_own_digest();
    return {.progress = read_progress(), .digests = read_digests()};
  }

  void operator()(const char* key, std::int64_t& value) const { value = whole_number(json_, key); }
  void operator()(const char* key, double& value) const { value = number(json_, key); }
  void operator()(const char* key, bool& value) const {
    const auto given = json_.value(key, Json());
    if (!given.is_boolean()) fail_at(key, "true or false");
    value = given.get<bool>();
  }
  void operator()(const char* key, Json& metrics) const { metrics = object_or_null(key); }
  void operator()(const char* key, std::optional<BestSoFar>& best) const {
    const auto given = object_or_null(key);
    if (!given.is_null())
      best = {.step = whole_number(given, "step"), .loss = number(given, "loss"), .error = number(given, "error")};
  }
  void operator()(const char* key, SpikeState& spikes) const {
    const auto given = json_.value(key, Json());
    if (!given.is_object()) fail_at(key, "an object");
    spikes = {.seen = whole_number(given, "seen"),
              .mean = number(given, "mean"),
              .variance = number(given, "variance"),
              .count = whole_number(given, "count")};
  }
  void operator()(const char* key, std::optional<AttentionCollapse>& collapse) const {
    const auto given = object_or_null(key);
    if (given.is_null()) return;
    collapse = collapse_of(given);
    if (!collapse) fail_at(key, "a step, a kind and an entropy");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::failure, fmt::format("{}: {}", source_, what));
  }
  [[noreturn]] void fail_at(const std::string& key, const std::string& expected) const {
    fail(fmt::format("damaged: {} is not {}", key, expected));
  }

  // Counts and steps: all of them are at least 0.
  std::int64_t whole_number(const Json& object, const std::string& key) const {
    constexpr std::uint64_t largest = std::uint64_t{1} << 53;
    const auto value = object.value(key, Json());
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > largest) fail_at(key, "a whole number from 0");
    return value.get<std::int64_t>();
  }
  double number(const Json& object, const std::string& key) const {
    const auto value = object.value(key, Json());
    if (!value.is_number()) fail_at(key, "a number");
    return value.get<double>();
  }
  Json object_or_null(const std::string& key) const {
    auto value = json_.value(key, Json());
    if (!value.is_null() && !value.is_object()) fail_at(key, "an object");
    return value;
  }

  void check_own_digest() {
    const auto given = json_.value("sha256", Json());
    json_.erase("sha256");
    if (!given.is_string() || given.get<std::string>() != sha256(json_.dump()))
      fail("damaged: its SHA-256 is not the one it gives");
  }

  Progress read_progress() const {
    Progress progress;
    visit(*this, progress);
    require_possible(progress);
    return progress;
  }

  // What the trainer relies on.
  void require_possible(const Progress& progress) const {
    constexpr std::int64_t most_rollbacks = 1000;
    if (progress.rollbacks > most_rollbacks) fail_at("rollbacks", fmt::format("at most {}", most_rollbacks));
    if (progress.evaluated_step > progress.step) fail_at("evaluated_step", "a step that was reached");
    if (progress.best && progress.best->step > progress.evaluated_step) fail_at("best", "of an evaluated step");
    if (progress.evaluated_step == 0) return;
    if (!progress.best) fail_at("best", "there, though an evaluation was");
    if (!progress.validation.is_object()) fail_at("validation", "there, though an evaluation was");
    number(progress.validation, "loss");
  }

  std::map<std::string, std::string> read_digests() const {
    std::map<std::string, std::string> digests;
    const auto files = object_or_null("files");
    for (const auto& [name, digest] : files.items()) {
      if (!digest.is_string()) fail_at("files", "file names with digests");
      digests[name] = digest.get<std::string>();
    }
    return digests;
  }

  const std::string& source_;
  Json json_;
};

}  // namespace

Json without_tables(const Json& metrics) {
  if (!metrics.is_object()) return metrics;
  auto values = Json::object();
  for (const auto& [name, value] : metrics.items())
    if (!value.is_structured()) values[name] = value;
  return values;
}

std::string to_text(const CheckpointMeta& meta) {
  ProgressWriter writer;
  visit(writer, meta.progress);
  auto json = std::move(writer.json);
  for (const auto& [name, digest] : meta.digests) json["files"][name] = digest;
  json["sha256"] = sha256(json.dump());
  return json.dump(2) + "\n";
}

CheckpointMeta read_checkpoint_meta(const std::string& text, const std::string& source) {
  return MetaReader(text, source).read();
}

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_meta = 1 << 20;

// The step of a checkpoint's name, or nothing.
std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  const char* digits = name.c_str() + std::min<std::size_t>(name.size(), 5);
  const auto [end, error] = std::from_chars(digits, name.c_str() + name.size(), step);
  const bool is_step = error == std::errc() && *end == '\0' && name == step_name(step);
  return is_step ? std::optional(step) : std::nullopt;
}

std::optional<Progress> progress_of(const fs::path& checkpoint) {
  try {
    return read_meta_of(checkpoint).progress;
  } catch (const NewerFormat&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A link that is right already is not written again.
void point_link(const fs::path& link, const std::string& target) {
  std::error_code absent;
  if (fs::read_symlink(link, absent) != target) replace_symlink(target, link);
}

// Renamed first: what dies halfway must not leave half a checkpoint under its name.
void remove_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  const bool has_temporary_name = !target_of_temporary(folder.filename().string()).empty();
  const auto temporary = has_temporary_name ? folder : temporary_name(folder);
  if (!has_temporary_name) fs::rename(folder, temporary, ignored);
  fs::remove_all(temporary, ignored);
}

void remove_old(const fs::path& checkpoints, const Progress& now, std::int64_t keep) {
  std::error_code ignored;
  const auto last = fs::read_symlink(checkpoints / "last", ignored),
             best = fs::read_symlink(checkpoints / "best", ignored);
  std::int64_t newer = 0, newer_scheduled = 0;
  for (const auto step : saved_steps(checkpoints)) {
    const fs::path name = step_name(step);
    const auto saved = progress_of(checkpoints / name);
    if (saved && is_abandoned(*saved, now)) {
      remove_abandoned(checkpoints / name, checkpoints / name, *saved);
      continue;
    }
    const bool is_recent = newer++ < keep, is_recent_scheduled = saved && saved->scheduled && newer_scheduled++ < keep;
    if (is_recent || is_recent_scheduled || name == last || name == best) continue;
    remove_checkpoint(checkpoints / name);
  }
}

// Only names that a save or a new link gives, and of a link only itself.
void remove_left_overs(const fs::path& checkpoints) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
    const auto target = target_of_temporary(entry.path().filename().string());
    if (step_of(target) || target == "last" || target == "best") fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("step-{}", step); }

CheckpointMeta read_meta_of(const fs::path& checkpoint) {
  const auto file = checkpoint / meta_file;
  return read_checkpoint_meta(read_file(file, largest_meta, ExitCode::failure), file.string());
}

std::vector<std::int64_t> saved_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  const fs::directory_iterator entries(checkpoints, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ExitCode::usage, fmt::format("{}: cannot be read: {}", checkpoints.string(), error.message()));
  for (const auto& entry : entries)
    if (const auto step = step_of(entry.path().filename().string()); step && !entry.is_symlink())
      steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::vector<SavedProgress> saved_progress(const fs::path& checkpoints) {
  std::vector<SavedProgress> all;
  for (const auto step : saved_steps(checkpoints))
    all.push_back({.step = step, .progress = progress_of(checkpoints / step_name(step))});
  std::int64_t most = 0;
  for (const auto& saved : all)
    if (saved.progress) most = std::max(most, saved.progress->rollbacks);
  const auto rank = [&](const SavedProgress& saved) {
    return std::tuple(saved.progress ? saved.progress->rollbacks : most, saved.step);
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return rank(a) > rank(b); });
  return all;
}

bool is_abandoned(const Progress& saved, const Progress& now) {
  return saved.rollbacks < now.rollbacks && saved.step > now.rollback_step;
}

void remove_abandoned(const fs::path& path, const fs::path& folder, const Progress& saved) {
  const bool was_best = saved.best && saved.best->step == saved.step;
  if (!was_best) return remove_checkpoint(path);
  const auto aside = folder.string() + ".abandoned";
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  fs::rename(path, aside, ignored);
  log::info("{} was the best checkpoint before the rollback; it is now {}", folder.string(), aside);
}

void repair_links(const fs::path& checkpoints, const Progress& progress, std::int64_t keep) {
  point_link(checkpoints / "last", step_name(progress.step));
  if (progress.best && fs::exists(checkpoints / step_name(progress.best->step)))
    point_link(checkpoints / "best", step_name(progress.best->step));
  remove_old(checkpoints, progress, keep);
  remove_left_overs(checkpoints);
  std::error_code ignored;
  const auto best = checkpoints / "best";
  if (fs::is_symlink(fs::symlink_status(best, ignored)) && !fs::exists(best, ignored)) fs::remove(best, ignored);
}

}  // namespace metaformer
