#pragma once
// meta.json of a checkpoint, and structs as JSON objects.

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/schema.h"
#include "tasks/measures.h"

namespace metaformer {

// A struct that is written as a JSON object has a function fields(value, field) beside it, which calls
// field(key, member) for each of its members, in the order of the file. AnyOf: T or const T.
template <class Value, class T>
concept AnyOf = std::same_as<std::remove_const_t<Value>, T>;

template <class T>
concept HasFields = requires(T& value) {
  fields(value, [](const char*, auto&) {});
};

// Scores become an object, in their order. The scores and tables of an evaluation become members of one object.
nlohmann::ordered_json json_of(const Scores& scores);
nlohmann::ordered_json json_of(const NamedScores& scores);
nlohmann::ordered_json json_of(const Evaluation& evaluation);

// An empty optional becomes null.
template <class T>
nlohmann::ordered_json json_of(const T& value) {
  if constexpr (HasFields<const T>) {
    auto json = nlohmann::ordered_json::object();
    fields(value, [&](const char* key, const auto& member) { json[key] = json_of(member); });
    return json;
  } else if constexpr (requires { value.has_value(); }) {
    return value ? json_of(*value) : nlohmann::ordered_json();
  } else if constexpr (std::is_enum_v<T>) {
    return to_string(value);
  } else {
    return value;
  }
}

// Throws an Error: the value of `key` is not `expected`.
using RefuseMember = std::function<void(const std::string& key, std::string_view expected)>;

// Reads what json_of wrote. Confusion tables are not read; evaluated_tokens and split_tokens become scores. Members
// that are not numbers are not read as scores.
void read_object(const nlohmann::ordered_json& object, Scores& scores, const RefuseMember& refuse);
void read_object(const nlohmann::ordered_json& object, NamedScores& scores, const RefuseMember& refuse);
void read_object(const nlohmann::ordered_json& object, Evaluation& evaluation, const RefuseMember& refuse);

// Sets `value` to a member of the object; a missing one counts as null. Whole numbers are counts, from 0 to 2^53.
template <class T>
void read_member(const nlohmann::ordered_json& object, const std::string& key, T& value, const RefuseMember& refuse) {
  const auto member = object.value(key, nlohmann::ordered_json());
  const auto require = [&](bool fits, std::string_view expected) {
    if (!fits) refuse(key, expected);
  };
  if constexpr (requires { value.has_value(); }) {
    value.reset();
    if (!member.is_null()) read_member(object, key, value.emplace(), refuse);
  } else if constexpr (HasFields<T>) {
    require(member.is_object(), "an object");
    fields(value, [&](const char* name, auto& inner) { read_member(member, name, inner, refuse); });
  } else if constexpr (std::is_enum_v<T>) {
    const auto names = enum_names(T{});
    const auto found = std::find(names.begin(), names.end(), member.is_string() ? member.get<std::string>() : "");
    require(found != names.end(), "a known name");
    value = static_cast<T>(found - names.begin());
  } else if constexpr (requires { read_object(member, value, refuse); }) {
    require(member.is_object(), "an object");
    read_object(member, value, refuse);
  } else {
    if constexpr (std::same_as<T, bool>) require(member.is_boolean(), "true or false");
    if constexpr (std::same_as<T, double>) require(member.is_number(), "a number");
    if constexpr (std::same_as<T, std::string>) require(member.is_string(), "a text");
    if constexpr (std::same_as<T, std::int64_t>)
      require(member.is_number_unsigned() && member.get<std::uint64_t>() <= std::uint64_t{1} << 53,
              "a whole number from 0");
    value = member.get<T>();
  }
}

// Running mean and variance of the logarithm of the gradient norm (train/trainer.h). Part of a checkpoint.
struct SpikeState {
  std::int64_t seen = 0;
  double mean = 0;
  double variance = 0;
  std::int64_t count = 0;  // spikes so far
};

struct BestSoFar {
  std::int64_t step = 0;
  double loss = 0;   // on the validation split
  double error = 0;  // by which it was selected (Measures::selection_error)
};

// How the attention of all heads has collapsed (train/diagnostics.h).
enum class CollapseKind { none, one_token, uniform };
constexpr std::array<std::string_view, 3> enum_names(CollapseKind) { return {"none", "one_token", "uniform"}; }

struct AttentionCollapse {
  std::int64_t step = 0;  // of the measurement that found it
  CollapseKind kind = CollapseKind::none;
  double entropy = 0;  // of the attention, mean over all heads, as a fraction of its maximum
};

void fields(AnyOf<AttentionCollapse> auto& collapse, auto field) {
  field("step", collapse.step);
  field("kind", collapse.kind);
  field("entropy", collapse.entropy);
}
inline nlohmann::ordered_json to_json(const AttentionCollapse& collapse) { return json_of(collapse); }

// The state of a run besides tensors. Batches, dropout and the learning rate are functions of the step.
struct Progress {
  std::int64_t step = 0;  // steps done
  std::optional<BestSoFar> best;
  double loss_sum = 0;          // of the steps since the last line of metrics.jsonl
  std::int64_t loss_count = 0;  // without skipped steps
  double last_train_loss = 0;   // of the last line of split train
  double train_seconds = 0;
  std::int64_t evaluated_step = 0;       // of the last evaluation
  std::optional<Evaluation> validation;  // the last evaluation
  std::optional<double> temperature;     // of a classifier with the weights of `step` (tasks/calibration.h)
  std::int64_t evaluations_since_best = 0;
  std::int64_t rollbacks = 0;
  std::int64_t rollback_step = 0;  // the step that the last rollback went back to
  bool scheduled = true;  // saved as the config says, with its evaluation done; false: saved because of a signal
  SpikeState spikes;
  std::int64_t clipped_steps = 0, clipped_count = 0;  // in all; since the last line of metrics.jsonl
  std::int64_t skipped_steps = 0;                     // because gradients overflowed in fp16
  double uniform_entropy = 0;                         // at the last measurement, if attention was uniform; else 0
  std::optional<AttentionCollapse> collapse = std::nullopt;  // the first one that was found
  // Sums over all processes that trained the run, up to its last save. Start-up is the time from the start of a process
  // to its first step; the other times begin with that step.
  double startup_seconds = 0, wall_seconds = 0, evaluation_seconds = 0, checkpoint_seconds = 0;
};

// Whether the evaluation of the progress's step is done.
inline bool is_evaluated(const Progress& progress) { return progress.evaluated_step == progress.step; }

// The checkpoint is intact, but this program is too old to read it.
class NewerFormat : public Error {
 public:
  using Error::Error;
};

// The message of the Error that `read` throws, "" when it throws none. Throws NewerFormat.
template <class Read>
std::string damage_of(Read read) {
  try {
    read();
    return "";
  } catch (const NewerFormat&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
}

struct CheckpointMeta {
  Progress progress;                           // its evaluation without tables
  std::map<std::string, std::string> digests;  // SHA-256 by file name
};

// The content of meta.json, which is small for every task. It ends with its own SHA-256.
std::string to_text(const CheckpointMeta& meta);

// Errors (exit code 1), which name `source`: the file is damaged, or no run can have this progress; NewerFormat.
CheckpointMeta read_checkpoint_meta(const std::string& text, const std::string& source);

// The folder `checkpoints` of a run: its checkpoints, the links to them, and the removal of old ones.
constexpr const char* meta_file = "meta.json";

std::string step_name(std::int64_t step);  // "step-12"

// meta.json of a checkpoint. Errors: exit code 1 when it is missing or damaged, NewerFormat.
CheckpointMeta read_meta_of(const std::filesystem::path& checkpoint);

// Sets the temperature of a checkpoint: replaces its meta.json in one operation. Only the holder of the run's lock may
// call it. Errors: those of read_meta_of; exit code 1 when the file cannot be written.
void set_temperature(const std::filesystem::path& checkpoint, double temperature);

// Steps with a folder, newest first. Links are not counted. Errors (exit code 2): the folder cannot be read.
std::vector<std::int64_t> saved_steps(const std::filesystem::path& checkpoints);

struct SavedProgress {
  std::int64_t step = 0;
  std::optional<Progress> progress;  // nothing if meta.json is damaged
};

// All checkpoints in the order in which a run resumes from them: those after more rollbacks first, then the newest. A
// damaged one counts as saved after the most rollbacks.
std::vector<SavedProgress> saved_progress(const std::filesystem::path& checkpoints);

// Whether the checkpoint was saved before the last rollback of the run at `now`, and is later than the step to which
// that rollback went back.
bool is_abandoned(const Progress& saved, const Progress& now);

// Removes an abandoned checkpoint, which lies at `path` and was called `folder`. If it was the best, it is renamed to
// FOLDER.abandoned.
void remove_abandoned(const std::filesystem::path& path, const std::filesystem::path& folder, const Progress& saved);

// The checkpoints that stay when a run's other checkpoints are removed; without `last` training continues from `best`.
enum class KeptCheckpoints { best_and_last, best };

// The folders of the other checkpoints, also of those that are damaged or abandoned. Errors (exit code 2): no kept
// checkpoint exists, or a link leads to none or to a damaged one.
std::vector<std::filesystem::path> spare_checkpoints(const std::filesystem::path& checkpoints, KeptCheckpoints kept);

// Removes them. Without `last` the link `last` leads to the best one. Only the holder of the run's lock may call it.
// Errors: also exit code 1, a folder cannot be removed.
void remove_spare_checkpoints(const std::filesystem::path& checkpoints, KeptCheckpoints kept);

// Points `last` and `best` at the checkpoints of a run at `progress`. Removes old checkpoints (all but the newest
// `keep`, the newest `keep` scheduled ones and the targets of the links), abandoned ones, and files of interrupted
// saves.
void repair_links(const std::filesystem::path& checkpoints, const Progress& progress, std::int64_t keep);

}  // namespace metaformer
