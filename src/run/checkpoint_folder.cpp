#include "run/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/files.h"
#include "base/log.h"

namespace metaformer {

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

void mend_links(const fs::path& checkpoints, const Progress& progress, std::int64_t keep) {
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
