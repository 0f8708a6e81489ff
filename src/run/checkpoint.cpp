#include "run/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "ops/device.h"
#include "run/safetensors.h"
#include "text/make_tokenizer.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::uintmax_t largest_table = std::uintmax_t{1} << 32;  // an entry per pair of classes
constexpr std::uintmax_t largest_tensors = std::uintmax_t{1} << 40;
constexpr const char* model_file = "model.safetensors";
constexpr const char* state_file = "state.safetensors";
constexpr const char* tokenizer_file = "tokenizer.json";
constexpr const char* labels_file = "labels.json";
constexpr const char* validation_file = "validation.json";

using Files = std::vector<std::pair<std::string, std::string>>;  // name, content

Files checkpoint_files(const Progress& progress, const NamedTensors& model, const NamedTensors& optimizer,
                       const Codec& codec) {
  Files files = {{model_file, to_safetensors(model)},
                 {state_file, to_safetensors(optimizer)},
                 {tokenizer_file, codec.tokenizer->to_json().dump(1) + "\n"}};
  if (!codec.labels.empty()) files.emplace_back(labels_file, nlohmann::json(codec.labels).dump(1) + "\n");
  if (progress.validation && !progress.validation->classes.empty())
    files.emplace_back(validation_file, json_of(*progress.validation).dump() + "\n");
  return files;
}

void write_files(const fs::path& folder, const Files& files, const Progress& progress) {
  fs::remove_all(folder);  // left by a dead process with the same process number
  if (!fs::create_directory(folder))
    throw Error(ExitCode::failure, folder.string() + ": was made by another process at the same time");
  CheckpointMeta meta{.progress = progress, .digests = {}};
  for (const auto& [name, bytes] : files) {
    write_file_synced(folder / name, bytes);
    meta.digests[name] = sha256(bytes);
  }
  write_file_synced(folder / meta_file, to_text(meta));
  sync_folder(folder);
}

class Loader {
 public:
  explicit Loader(fs::path folder) : folder_(std::move(folder)) {}

  Checkpoint load(WithOptimizer with_optimizer) {
    auto checkpoint = load_small_files();
    checkpoint.model = from_safetensors(read_checked(model_file), path(model_file));
    if (with_optimizer == WithOptimizer::no) return checkpoint;
    checkpoint.optimizer = from_safetensors(read_checked(state_file), path(state_file));
    if (meta_.digests.contains(validation_file)) checkpoint.progress.validation = read_validation();
    return checkpoint;
  }

  // Throws unless all files read back byte by byte as written, and all but the tensors can be loaded.
  void require_written(const Files& files) {
    for (const auto& [name, bytes] : files)
      if (!holds(folder_ / name, bytes))
        throw Error(ExitCode::failure, path(name.c_str()) + ": does not read back as it was written");
    load_small_files();
    if (meta_.digests.contains(validation_file)) read_validation();
  }

 private:
  std::string path(const char* name) const { return (folder_ / name).string(); }

  Checkpoint load_small_files() {
    meta_ = read_meta_of(folder_);
    Checkpoint checkpoint{.folder = folder_, .progress = meta_.progress, .model = {}, .optimizer = {}, .codec = {}};
    checkpoint.codec.tokenizer = load_tokenizer(read_checked(tokenizer_file), path(tokenizer_file));
    if (meta_.digests.contains(labels_file)) checkpoint.codec.labels = read_labels();
    return checkpoint;
  }

  std::vector<std::string> read_labels() const {
    const auto json = parse_json(read_checked(labels_file));
    const bool texts = json.is_array() && std::ranges::all_of(json, &nlohmann::json::is_string);
    if (!texts) throw Error(ExitCode::failure, path(labels_file) + ": damaged: not a list of texts");
    return json.get<std::vector<std::string>>();
  }

  Evaluation read_validation() const {
    constexpr auto any_number = std::numeric_limits<std::int64_t>::max();
    const auto fail = [&](const std::string& problem) {
      throw Error(ExitCode::failure, fmt::format("{}: damaged: {}", path(validation_file), problem));
    };
    const auto refuse = [&](const std::string& key, std::string_view expected) {
      fail(fmt::format("{} is not {}", key, expected));
    };
    const auto json = parse_json<nlohmann::ordered_json>(read_checked(validation_file, largest_table), any_number);
    Evaluation evaluation;
    if (json.is_object()) read_object(json, evaluation, refuse);
    const auto& known = meta_.progress.validation;
    if (!known || evaluation.scores != known->scores) fail("not the evaluation that meta.json gives");
    return evaluation;
  }

  std::string read_checked(const char* name, std::uintmax_t largest = largest_tensors) const {
    auto bytes = read_file(folder_ / name, largest, ExitCode::failure);
    const auto digest = meta_.digests.find(name);
    if (digest == meta_.digests.end() || digest->second != sha256(bytes))
      throw Error(ExitCode::failure, path(name) + ": damaged: its SHA-256 is not the one in meta.json");
    return bytes;
  }

  fs::path folder_;
  CheckpointMeta meta_;
};

// Renames a damaged folder; returns its new name.
std::string set_aside(const fs::path& folder) {
  const auto aside = folder.string() + ".damaged";
  fs::remove_all(aside);
  fs::rename(folder, aside);
  return aside;
}

// Whether the checkpoint to save replaces the saved one of the same step, because it has more information.
bool supersedes(const Progress& now, const Progress& saved) {
  const auto best_step = [](const Progress& progress) { return progress.best ? progress.best->step : -1; };
  if (now.rollbacks != saved.rollbacks || (now.scheduled && !saved.scheduled)) return true;
  return is_evaluated(now) && (!is_evaluated(saved) || best_step(now) != best_step(saved));
}

// Whether the existing checkpoint of this step stays. Renames a damaged folder, and removes a dangling link, so that a
// new one can be written. Throws NewerFormat.
bool stays(const fs::path& folder, const Progress& now) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    if (fs::remove(folder, ignored)) log::warning("{} was a link to nowhere; it is removed", folder.string());
    return false;
  }
  bool stays = false;
  const auto damage = damage_of([&] { stays = !supersedes(now, Loader(folder).load(WithOptimizer::yes).progress); });
  if (!damage.empty()) log::warning("{}; it is written again, the old one is now {}", damage, set_aside(folder));
  return stays;
}

bool is_whole(const fs::path& folder) {
  return damage_of([&] { Loader(folder).load(WithOptimizer::yes); }).empty();
}

// If `name`, last or best, is a folder, replaces it by a link.
void turn_into_link(const fs::path& checkpoints, const std::string& name) {
  const auto copy = checkpoints / name;
  if (!fs::is_directory(fs::symlink_status(copy))) return;
  if (!is_whole(copy)) {
    log::warning("{} is a damaged folder where a link should be; it is now {}", copy.string(), set_aside(copy));
    return;
  }
  const auto target = step_name(read_meta_of(copy).progress.step);
  const auto folder = checkpoints / target;
  if (is_whole(folder)) {
    fs::rename(copy, temporary_name(copy));  // under this name it is removed later if the process dies here
    fs::remove_all(temporary_name(copy));
  } else {
    if (fs::exists(fs::symlink_status(folder))) set_aside(folder);
    fs::rename(copy, folder);
  }
  replace_symlink(target, copy);
  log::info("{} was a folder, as in a copy that follows links; it is a link to {} again", copy.string(), target);
}

// Loads the first intact checkpoint of `steps`; damaged ones are skipped with a warning.
std::optional<Checkpoint> load_first_whole(const fs::path& checkpoints, const std::vector<std::int64_t>& steps) {
  std::optional<Checkpoint> found;
  for (const auto step : steps) {
    const auto damage = damage_of([&] { found = Loader(checkpoints / step_name(step)).load(WithOptimizer::yes); });
    if (found) break;
    log::warning("{}; trying an earlier checkpoint", damage);
  }
  return found;
}

// The problem of a checkpoint; "" when it is intact.
std::string problem_of(const RunDirectory& run, std::int64_t step) {
  std::error_code ignored;
  if (!fs::exists(run.checkpoints() / step_name(step), ignored)) return "it is no longer there";
  return damage_of([&] { load_checkpoint(run, step_name(step), WithOptimizer::no); });
}

std::optional<BestSoFar> find_best(const RunDirectory& run, const Measures& measures, const Progress& now) {
  std::optional<BestSoFar> best;
  for (const auto& [step, saved] : saved_progress(run.checkpoints())) {
    const bool counts = saved && step > 0 && step <= now.step && is_evaluated(*saved) && !is_abandoned(*saved, now);
    if (!counts || !problem_of(run, step).empty()) continue;
    const auto error = measures.selection_error(*saved->validation);
    if (best && !(error <= best->error)) continue;  // of equal errors the earliest step wins
    best = BestSoFar{.step = step, .loss = saved->validation->at("loss"), .error = error};
  }
  return best;
}

void copy_file_synced(const fs::path& from, const fs::path& to) {
  write_file_synced(to, read_file(from, largest_tensors, ExitCode::failure));
}

void copy_folder(const fs::path& from, const fs::path& to) {
  const auto temporary = temporary_name(to);
  fs::create_directory(temporary);
  for (const auto& entry : fs::directory_iterator(from))
    copy_file_synced(entry.path(), temporary / entry.path().filename());
  sync_folder(temporary);
  fs::rename(temporary, to);
}

// Whether a run that begins from a checkpoint of another one continues a copy of this file.
bool is_continued(const std::string& name) {
  return name == "metrics.jsonl" || name == "samples.jsonl" || name == "initial_weights.json" ||
         name.starts_with("events.out.tfevents.");
}

// environment.json of a run that begins from the checkpoint of a step.
Json environment_from(const RunDirectory& from, std::int64_t step) {
  auto environment = read_environment(from);
  auto sessions = Json::array();
  for (const auto& session : environment.value("sessions", Json::array())) {
    const auto first_step = session.is_object() ? session.value("first_step", Json()) : Json();
    if (first_step.is_number_integer() && first_step.get<std::int64_t>() < step) sessions.push_back(session);
  }
  environment["sessions"] = std::move(sessions);
  environment["continued_from"] = {
      {"run", fs::canonical(from.path()).string()}, {"checkpoint", step_name(step)}, {"step", step}};
  return environment;
}

// Removes all files of a new run but its lock.
void clear(const RunDirectory& run) {
  std::error_code ignored;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(run.path(), ignored))
    if (entry.path() != run.lock_file()) paths.push_back(entry.path());
  for (const auto& path : paths) fs::remove_all(path, ignored);
}

}  // namespace

void save_checkpoint(const RunDirectory& run, const Progress& progress, const NamedTensors& model,
                     const NamedTensors& optimizer, const Codec& codec, std::int64_t keep) {
  const StopDeferral saving;
  const auto folder = run.checkpoints() / step_name(progress.step);
  if (!stays(folder, progress)) {
    const auto temporary = temporary_name(folder);
    try {
      const auto files = checkpoint_files(progress, model, optimizer, codec);
      write_files(temporary, files, progress);
      Loader(temporary).require_written(files);
      fault_point("checkpoint");
      if (fs::exists(fs::symlink_status(folder))) {
        const auto saved = read_meta_of(folder).progress;
        exchange(temporary, folder);
        is_abandoned(saved, progress) ? remove_abandoned(temporary, folder, saved) : (void)fs::remove_all(temporary);
      } else {
        fs::rename(temporary, folder);
      }
    } catch (const std::exception& error) {
      std::error_code ignored;
      fs::remove_all(temporary, ignored);
      if (is_out_of_memory(error)) throw;
      throw Error(ExitCode::failure, fmt::format("checkpoint {} could not be saved: {}; earlier checkpoints are intact",
                                                 folder.string(), error.what()));
    }
    sync_folder(run.checkpoints());
  }
  repair_links(run.checkpoints(), progress, keep);
}

void repair_checkpoints(const RunDirectory& run) {
  const auto checkpoints = run.checkpoints();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
    // A process that dies between the renames of exchange() leaves the earlier folder under another name.
    const auto& path = entry.path();
    if (path.extension() != replaced_suffix || !path.filename().string().starts_with("step-")) continue;
    const auto folder = checkpoints / path.stem();
    fs::exists(folder) ? (void)fs::remove_all(path) : fs::rename(path, folder);
  }
  for (const auto* name : {"last", "best"}) turn_into_link(checkpoints, name);
}

Checkpoint load_checkpoint(const RunDirectory& run, const std::string& name, WithOptimizer with_optimizer,
                           const char* option) {
  auto folder = run.checkpoints() / name;
  std::error_code ignored, problem;
  if (!fs::is_directory(folder, ignored) && name.find('/') != std::string::npos) folder = name;
  const bool is_there = fs::is_regular_file(folder / meta_file, problem);
  if (problem == std::errc::permission_denied) fail_usage("{}: cannot be read: {}", folder.string(), problem.message());
  if (name.empty() || !is_there) {
    std::vector<std::string> names;
    for (const auto step : saved_steps(run.checkpoints())) names.push_back(step_name(step));
    fail_usage("{} {}: {} has no such checkpoint; it has {}", option, name, run.path().string(),
               names.empty() ? "none" : join_alternatives(names));
  }
  return Loader(folder).load(with_optimizer);
}

std::optional<Checkpoint> load_newest_checkpoint(const RunDirectory& run) {
  std::vector<std::int64_t> steps;
  for (const auto& saved : saved_progress(run.checkpoints())) steps.push_back(saved.step);
  auto checkpoint = load_first_whole(run.checkpoints(), steps);
  if (!checkpoint && !steps.empty())
    throw Error(ExitCode::failure, fmt::format("{}: no checkpoint is whole", run.checkpoints().string()));
  return checkpoint;
}

void begin_from_checkpoint(const RunDirectory& run, const RunDirectory& from, const Checkpoint& checkpoint) try {
  const auto& [step, best] = std::tie(checkpoint.progress.step, checkpoint.progress.best);
  copy_folder(checkpoint.folder, run.checkpoints() / step_name(step));
  if (best && best->step != step && fs::is_directory(from.checkpoints() / step_name(best->step)))
    copy_folder(from.checkpoints() / step_name(best->step), run.checkpoints() / step_name(best->step));
  sync_folder(run.checkpoints());
  for (const auto& entry : fs::directory_iterator(from.path()))
    if (is_continued(entry.path().filename().string()))
      copy_file_synced(entry.path(), run.path() / entry.path().filename());
  write_file_atomically(run.environment_file(), json_text(environment_from(from, step), 2) + "\n");
} catch (...) {
  clear(run);
  throw;
}

std::optional<Checkpoint> load_rollback_checkpoint(const RunDirectory& run, const Progress& progress) {
  std::vector<std::int64_t> steps;
  for (const auto& [step, saved] : saved_progress(run.checkpoints())) {
    const bool since = saved && saved->rollbacks == progress.rollbacks;
    if (saved && saved->scheduled && (since || step < progress.rollback_step)) steps.push_back(step);
  }
  return load_first_whole(run.checkpoints(), steps);
}

void require_best_checkpoint(const RunDirectory& run, const Measures& measures, Progress& progress) {
  if (!progress.best || progress.best->step == progress.step) return;
  const auto name = step_name(progress.best->step);
  const auto problem = problem_of(run, progress.best->step);
  if (problem.empty()) return;
  progress.best = find_best(run, measures, progress);
  log::warning("the best checkpoint, {}, cannot be used: {}; {}", name, problem,
               progress.best ? "the best of those that are left is " + step_name(progress.best->step)
                             : "the next evaluation starts the choice again");
  if (progress.best) return;
  progress.evaluated_step = 0;
  progress.evaluations_since_best = 0;
  progress.validation.reset();
}

}  // namespace metaformer
