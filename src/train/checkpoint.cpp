#include "train/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/fault.h"
#include "core/files.h"
#include "core/json_text.h"
#include "core/log.h"
#include "core/text.h"
#include "data/digest.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_meta = 1 << 24;  // metrics hold an entry per class
constexpr std::uintmax_t largest_tensors = std::uintmax_t{1} << 40;
constexpr const char* model_file = "model.safetensors";
constexpr const char* state_file = "state.safetensors";
constexpr const char* tokenizer_file = "tokenizer.json";
constexpr const char* labels_file = "labels.json";
constexpr const char* meta_file = "meta.json";

std::string step_name(std::int64_t step) { return fmt::format("step-{}", step); }

using Files = std::vector<std::pair<std::string, std::string>>;  // name, content

Files checkpoint_files(const NamedTensors& model, const NamedTensors& optimizer, const Codec& codec) {
  Files files = {{model_file, to_safetensors(model)},
                 {state_file, to_safetensors(optimizer)},
                 {tokenizer_file, codec.tokenizer->to_json().dump(1) + "\n"}};
  if (!codec.labels.empty()) files.emplace_back(labels_file, nlohmann::json(codec.labels).dump(1) + "\n");
  return files;
}

void write_files(const fs::path& folder, const Files& files, const Progress& progress) {
  fs::create_directories(folder);
  CheckpointMeta meta{.progress = progress, .digests = {}};
  for (const auto& [name, bytes] : files) {
    write_file_synced(folder / name, bytes);
    meta.digests[name] = sha256(bytes);
  }
  write_file_synced(folder / meta_file, to_text(meta));
  sync_folder(folder);
}

// Steps with a folder, newest first.
std::vector<std::int64_t> saved_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
    const auto name = entry.path().filename().string();
    std::int64_t step = 0;
    const char* digits = name.c_str() + std::min<std::size_t>(name.size(), 5);
    const auto [end, error] = std::from_chars(digits, name.c_str() + name.size(), step);
    if (name == step_name(step) && error == std::errc() && *end == '\0' && !entry.is_symlink()) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void remove_old(const fs::path& checkpoints, std::int64_t keep) {
  std::error_code ignored;
  const auto last = fs::read_symlink(checkpoints / "last", ignored),
             best = fs::read_symlink(checkpoints / "best", ignored);
  std::int64_t kept = 0;
  for (const auto step : saved_steps(checkpoints)) {
    const fs::path name = step_name(step);
    if (kept++ < keep || name == last || name == best) continue;
    fs::remove_all(checkpoints / name, ignored);
  }
  // What an interrupted save left behind.
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored))
    if (entry.path().filename().string().ends_with(".tmp")) fs::remove_all(entry.path(), ignored);
}

class Loader {
 public:
  explicit Loader(fs::path folder) : folder_(std::move(folder)) {}

  Checkpoint load(WithOptimizer with_optimizer) {
    meta_ = read_checkpoint_meta(read_file(folder_ / meta_file, largest_meta, ExitCode::failure), path(meta_file));
    Checkpoint checkpoint{.folder = folder_, .progress = meta_.progress, .model = {}, .optimizer = {}, .codec = {}};
    checkpoint.model = from_safetensors(read_checked(model_file), path(model_file));
    checkpoint.codec.tokenizer = load_tokenizer(read_checked(tokenizer_file), path(tokenizer_file));
    if (meta_.digests.contains(labels_file)) checkpoint.codec.labels = read_labels();
    if (with_optimizer == WithOptimizer::yes)
      checkpoint.optimizer = from_safetensors(read_checked(state_file), path(state_file));
    return checkpoint;
  }

 private:
  std::string path(const char* name) const { return (folder_ / name).string(); }

  std::vector<std::string> read_labels() const {
    const auto json = parse_json(read_checked(labels_file));
    const bool texts =
        json.is_array() && std::all_of(json.begin(), json.end(), [](const auto& entry) { return entry.is_string(); });
    if (!texts) throw Error(ExitCode::failure, path(labels_file) + ": damaged: not a list of texts");
    return json.get<std::vector<std::string>>();
  }

  std::string read_checked(const char* name) const {
    auto bytes = read_file(folder_ / name, largest_tensors, ExitCode::failure);
    const auto digest = meta_.digests.find(name);
    if (digest == meta_.digests.end() || digest->second != sha256(bytes))
      throw Error(ExitCode::failure, path(name) + ": damaged: its SHA-256 is not the one in meta.json");
    return bytes;
  }

  fs::path folder_;
  CheckpointMeta meta_;
};

}  // namespace

// A damaged folder of the same step makes room for a new one. Throws NewerFormat.
static bool is_whole(const fs::path& folder) {
  if (!fs::exists(folder)) return false;
  try {
    Loader(folder).load(WithOptimizer::yes);
    return true;
  } catch (const NewerFormat&) {
    throw;
  } catch (const Error& error) {
    auto aside = folder;
    aside += ".damaged";
    log::warning("{}; it is written again, the old one is now {}", error.what(), aside.string());
    fs::remove_all(aside);
    fs::rename(folder, aside);
    return false;
  }
}

// A link that is right already is not written again.
static void point_link(const fs::path& link, const std::string& target) {
  std::error_code absent;
  if (fs::read_symlink(link, absent) != target) replace_symlink(target, link);
}

void mend_links(const RunDirectory& run, const Progress& progress, std::int64_t keep) {
  point_link(run.checkpoints() / "last", step_name(progress.step));
  if (progress.best && fs::exists(run.checkpoints() / step_name(progress.best->step)))
    point_link(run.checkpoints() / "best", step_name(progress.best->step));
  remove_old(run.checkpoints(), keep);
}

void save_checkpoint(const RunDirectory& run, const Progress& progress, const NamedTensors& model,
                     const NamedTensors& optimizer, const Codec& codec, std::int64_t keep) {
  const auto name = step_name(progress.step);
  const auto folder = run.checkpoints() / name;
  if (!is_whole(folder)) {
    const auto temporary = run.checkpoints() / fmt::format(".{}.{}.tmp", name, ::getpid());
    try {
      write_files(temporary, checkpoint_files(model, optimizer, codec), progress);
      fault_point("checkpoint");
      fs::rename(temporary, folder);
    } catch (const std::exception& error) {
      std::error_code ignored;
      fs::remove_all(temporary, ignored);
      throw Error(ExitCode::failure, fmt::format("checkpoint {} could not be saved: {}; earlier checkpoints are intact",
                                                 folder.string(), error.what()));
    }
    sync_folder(run.checkpoints());
  }
  mend_links(run, progress, keep);
}

Checkpoint load_checkpoint(const RunDirectory& run, const std::string& name, WithOptimizer with_optimizer) {
  auto folder = run.checkpoints() / name;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) && name.find('/') != std::string::npos) folder = name;
  if (name.empty() || !fs::is_regular_file(folder / meta_file, ignored)) {
    std::vector<std::string> names;
    for (const auto step : saved_steps(run.checkpoints())) names.push_back(step_name(step));
    throw Error(ExitCode::usage, fmt::format("--checkpoint {}: {} has no such checkpoint; it has {}", name,
                                             run.path().string(), names.empty() ? "none" : join_alternatives(names)));
  }
  return Loader(folder).load(with_optimizer);
}

std::optional<Checkpoint> load_newest_checkpoint(const RunDirectory& run) {
  const auto steps = saved_steps(run.checkpoints());
  for (const auto step : steps) {
    try {
      return Loader(run.checkpoints() / step_name(step)).load(WithOptimizer::yes);
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error& error) {
      log::warning("{}; trying an earlier checkpoint", error.what());
    }
  }
  if (!steps.empty())
    throw Error(ExitCode::failure, fmt::format("{}: no checkpoint is whole", run.checkpoints().string()));
  return std::nullopt;
}

}  // namespace metaformer
