#include "run/checkpoint_meta.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/digest.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "tasks/calibration.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace fs = std::filesystem;

void fields(AnyOf<ClassCounts> auto& counts, auto field) {
  field("texts", counts.texts);
  field("predicted", counts.predicted);
  field("correct", counts.correct);
}

void fields(AnyOf<SpikeState> auto& spikes, auto field) {
  field("seen", spikes.seen);
  field("mean", spikes.mean);
  field("variance", spikes.variance);
  field("count", spikes.count);
}

void fields(AnyOf<BestSoFar> auto& best, auto field) {
  field("step", best.step);
  field("loss", best.loss);
  field("error", best.error);
}

void fields(AnyOf<Progress> auto& progress, auto field) {
  field("step", progress.step);
  field("best", progress.best);
  field("loss_sum", progress.loss_sum);
  field("loss_count", progress.loss_count);
  field("last_train_loss", progress.last_train_loss);
  field("train_seconds", progress.train_seconds);
  field("evaluated_step", progress.evaluated_step);
  field("validation", progress.validation);
  field("temperature", progress.temperature);
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

namespace {

constexpr std::int64_t format_version = 2;

// Inserts without a search for the name: names are distinct, and an ordered object would compare all of them each time.
void append(Json& object, const std::string& name, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(name, std::move(value));
}

// Checks the properties that the trainer relies on.
void require_possible(const Progress& progress, const RefuseMember& refuse) {
  constexpr std::int64_t most_rollbacks = 1000;
  if (progress.rollbacks > most_rollbacks) refuse("rollbacks", fmt::format("at most {}", most_rollbacks));
  if (progress.evaluated_step > progress.step) refuse("evaluated_step", "a step that was reached");
  if (progress.best && progress.best->step > progress.evaluated_step) refuse("best", "of an evaluated step");
  if (const double temperature = progress.temperature.value_or(1);
      !(temperature >= lowest_temperature && temperature <= highest_temperature))
    refuse("temperature", fmt::format("from {} to {}", lowest_temperature, highest_temperature));
  if (progress.collapse && progress.collapse->kind == CollapseKind::none) refuse("attention_collapse", "of a kind");
  if (progress.evaluated_step == 0) return;
  if (!progress.best) refuse("best", "there, though an evaluation was");
  if (!progress.validation) refuse("validation", "there, though an evaluation was");
  if (!std::isfinite(progress.validation->find("loss").value_or(NAN))) refuse("loss", "a number");
}

constexpr std::uintmax_t largest_meta = 1 << 20;

// The step of a checkpoint's name, or nothing.
std::optional<std::int64_t> step_of(std::string_view name) {
  const auto step = name.starts_with("step-") ? as_number<std::int64_t>(name.substr(5)) : std::nullopt;
  return step && name == step_name(*step) ? step : std::nullopt;
}

std::optional<Progress> progress_of(const fs::path& checkpoint) {
  std::optional<Progress> progress;
  damage_of([&] { progress = read_meta_of(checkpoint).progress; });
  return progress;
}

// A link that is right already is not written again.
void point_link(const fs::path& link, const std::string& target) {
  std::error_code absent;
  if (fs::read_symlink(link, absent) != target) replace_symlink(target, link);
}

// Renames the folder first, so that a process that dies halfway leaves no incomplete checkpoint under that name.
void remove_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(rename_to_temporary(folder, ignored), ignored);
}

// The name of the checkpoint to which a link or a copied folder leads; nothing if there is neither. Errors (exit code
// 2): it leads nowhere, or to a damaged checkpoint.
std::optional<std::string> checkpoint_behind(const fs::path& link) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(link, ignored))) return std::nullopt;
  try {
    return step_name(read_meta_of(link).progress.step);
  } catch (const Error& error) {
    fail_usage("{}; train --resume repairs the run", error.what());
  }
}

// All folders step-N, step-N.damaged and so on, sorted by name.
std::vector<fs::path> step_folders(const fs::path& checkpoints) {
  std::vector<fs::path> folders;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored))
    if (step_of(entry.path().stem().string()) && !entry.is_symlink(ignored) && entry.is_directory(ignored))
      folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
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

}  // namespace

Json json_of(const Scores& scores) {
  auto json = Json::object();
  for (const auto& [key, value] : scores) std::visit([&, &key = key](auto number) { json[key] = number; }, value);
  return json;
}

Json json_of(const NamedScores& scores) {
  auto json = Json::object();
  for (const auto& [name, of_name] : scores) json[name] = json_of(of_name);
  return json;
}

Json json_of(const Evaluation& evaluation) {
  auto json = json_of(evaluation.scores);
  const auto& [scores, classes, confusion, evaluated_tokens, split_tokens, written] = evaluation;
  if (!classes.empty()) json["classes"] = Json::object();
  for (const auto& [label, counts] : classes) {
    auto entry = json_of(counts);
    if (const auto precision = counts.precision()) entry["precision"] = *precision;
    if (const auto recall = counts.recall()) entry["recall"] = *recall;
    if (const auto f1 = counts.f1()) entry["f1"] = *f1;
    append(json["classes"], label, std::move(entry));
  }
  if (!confusion.empty()) json["confusion"] = Json::object();
  for (auto count = confusion.begin(); count != confusion.end();) {
    auto row = Json::object();
    const auto& label = classes[static_cast<std::size_t>(count - confusion.begin()) / classes.size()].first;
    for (const auto& [predicted, counts] : classes) append(row, predicted, *count++);
    append(json["confusion"], label, std::move(row));
  }
  if (split_tokens > 0) json.update({{"evaluated_tokens", evaluated_tokens}, {"split_tokens", split_tokens}});
  if (!written) return json;
  auto& of_written = json["written"] = json_of(written->scores);
  of_written["baselines"] = json_of(written->baselines);
  for (const auto& [name, signature] : written->signatures) of_written["signatures"][name] = signature;
  return json;
}

void read_object(const Json& object, Scores& scores, const RefuseMember&) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_number_integer())
      scores.emplace_back(key, value.get<std::int64_t>());
    else if (value.is_number() || value.is_null())  // JSON has no NaN
      scores.emplace_back(key, value.is_null() ? NAN : value.get<double>());
  }
}

void read_object(const Json& object, NamedScores& scores, const RefuseMember& refuse) {
  for (const auto& [name, value] : object.items())
    read_member(object, name, scores.emplace_back(name, Scores()).second, refuse);
}

void read_object(const Json& object, Evaluation& evaluation, const RefuseMember& refuse) {
  const auto object_in = [&](const Json& of, const char* key) {
    auto member = of.value(key, Json::object());
    if (!member.is_object()) refuse(key, "an object");
    return member;
  };
  read_object(object, evaluation.scores, refuse);
  const auto classes = object_in(object, "classes");
  for (const auto& item : classes.items()) {
    if (!item.value().is_object()) refuse(item.key(), "an object");
    fields(evaluation.classes.emplace_back(item.key(), ClassCounts()).second,
           [&](const char* key, auto& count) { read_member(item.value(), key, count, refuse); });
  }
  if (!object.contains("written")) return;
  Scores scores;
  read_member(object, "written", scores, refuse);
  const auto& written = object["written"];
  evaluation.written = {.scores = std::move(scores), .baselines = {}, .signatures = {}};
  if (written.contains("baselines")) read_member(written, "baselines", evaluation.written->baselines, refuse);
  const auto signatures = object_in(written, "signatures");
  for (const auto& [name, text] : signatures.items())
    read_member(signatures, name, evaluation.written->signatures.emplace_back(name, "").second, refuse);
}

std::string to_text(const CheckpointMeta& meta) {
  Json json = {{"format_version", format_version}};
  json.update(json_of(meta.progress));
  if (const auto& validation = meta.progress.validation) json["validation"] = json_of(validation->scores);
  if (!meta.progress.temperature) json.erase("temperature");
  if (!meta.progress.collapse) json.erase("attention_collapse");
  for (const auto& [name, digest] : meta.digests) json["files"][name] = digest;
  json["sha256"] = sha256(json.dump());
  return json.dump(2) + "\n";
}

CheckpointMeta read_checkpoint_meta(const std::string& text, const std::string& source) {
  const auto fail = [&](const std::string& what) {
    throw Error(ExitCode::failure, fmt::format("{}: damaged: {}", source, what));
  };
  const RefuseMember refuse = [&](const std::string& key, std::string_view expected) {
    fail(fmt::format("{} is not {}", key, expected));
  };
  auto json = parse_json<Json>(text);
  if (!json.is_object()) fail("not a JSON object");
  std::int64_t version = 0;
  read_member(json, "format_version", version, refuse);
  if (version > format_version)
    throw NewerFormat(ExitCode::failure,
                      fmt::format("{}: written by a newer metaformer (format {}; this one reads up to {})", source,
                                  version, format_version));
  if (version < format_version) refuse("format_version", std::to_string(format_version));
  const auto digest = json.value("sha256", Json());
  json.erase("sha256");
  if (!digest.is_string() || digest.get<std::string>() != sha256(json.dump()))
    fail("its SHA-256 is not the one it gives");
  CheckpointMeta meta;
  fields(meta.progress, [&](const char* key, auto& member) { read_member(json, key, member, refuse); });
  require_possible(meta.progress, refuse);
  const auto files = json.value("files", Json());
  if (!files.is_null() && !files.is_object()) refuse("files", "an object");
  for (const auto& [name, of_file] : files.items()) read_member(files, name, meta.digests[name], refuse);
  return meta;
}

std::string step_name(std::int64_t step) { return fmt::format("step-{}", step); }

CheckpointMeta read_meta_of(const fs::path& checkpoint) {
  const auto file = checkpoint / meta_file;
  return read_checkpoint_meta(read_file(file, largest_meta, ExitCode::failure), file.string());
}

void set_temperature(const fs::path& checkpoint, double temperature) {
  auto meta = read_meta_of(checkpoint);
  meta.progress.temperature = temperature;
  write_file_atomically(checkpoint / meta_file, to_text(meta));
}

std::vector<std::int64_t> saved_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  const fs::directory_iterator entries(checkpoints, error);
  if (error && error != std::errc::no_such_file_or_directory)
    fail_usage("{}: cannot be read: {}", checkpoints.string(), error.message());
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
  std::ranges::stable_sort(all, std::ranges::greater(), [&](const SavedProgress& saved) {
    return std::tuple(saved.progress ? saved.progress->rollbacks : most, saved.step);
  });
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

std::vector<fs::path> spare_checkpoints(const fs::path& checkpoints, KeptCheckpoints kept) {
  auto folders = step_folders(checkpoints);
  if (folders.empty()) return folders;
  const auto best = checkpoint_behind(checkpoints / "best");
  const auto last = kept == KeptCheckpoints::best ? std::nullopt : checkpoint_behind(checkpoints / "last");
  if (!best && !last)
    fail_usage("{}: has no link {}, so no checkpoint would stay", checkpoints.string(),
               kept == KeptCheckpoints::best ? "best" : "best or last");
  std::erase_if(folders,
                [&](const fs::path& folder) { return folder.filename() == best || folder.filename() == last; });
  return folders;
}

void remove_spare_checkpoints(const fs::path& checkpoints, KeptCheckpoints kept) {
  const auto spare = spare_checkpoints(checkpoints, kept);
  if (spare.empty()) return;
  if (kept == KeptCheckpoints::best) {
    const auto last = checkpoints / "last";
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(last, ignored))) remove_checkpoint(last);
    point_link(last, checkpoint_behind(checkpoints / "best").value());
  }
  std::ranges::for_each(spare, remove_checkpoint);
  if (const auto left = spare_checkpoints(checkpoints, kept); !left.empty())
    throw Error(ExitCode::failure, fmt::format("{}: cannot be removed", left.front().string()));
}

void repair_links(const fs::path& checkpoints, const Progress& progress, std::int64_t keep) {
  point_link(checkpoints / "last", step_name(progress.step));
  if (progress.best && fs::exists(checkpoints / step_name(progress.best->step)))
    point_link(checkpoints / "best", step_name(progress.best->step));
  remove_old(checkpoints, progress, keep);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
    // Removes only temporary names of checkpoints and links. remove_all removes a link itself, not its target.
    const auto target = target_of_temporary(entry.path().filename().string());
    if (step_of(target) || target == "last" || target == "best") fs::remove_all(entry.path(), ignored);
  }
  const auto best = checkpoints / "best";
  if (fs::is_symlink(fs::symlink_status(best, ignored)) && !fs::exists(best, ignored)) fs::remove(best, ignored);
}

}  // namespace metaformer
