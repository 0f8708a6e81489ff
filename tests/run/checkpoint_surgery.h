#pragma once
// Changes to runs and checkpoints, as by other programs or accidents, with right digests.

#include <functional>

#include "base/digest.h"
#include "run/safetensors.h"
#include "support/workplace.h"

namespace metaformer {

// Evaluates and saves once, because saving takes most of the time of a small training.
inline const Overrides evaluates_and_saves_once = {"train.eval_interval=1000", "train.checkpoint_interval=1000"};

inline std::string state_bytes(const std::filesystem::path& run) {
  return read_text(run / "checkpoints/last/state.safetensors");
}

inline void copy_run(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::copy(from, to,
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
}

// Changes the run as if the process had died before its end, and removes these checkpoints.
inline void forget_end(const std::filesystem::path& run, const std::vector<std::string>& checkpoints = {}) {
  std::filesystem::remove(run / "summary.json");
  for (const auto& name : checkpoints) std::filesystem::remove_all(run / "checkpoints" / name);
}

using MetaChange = std::function<void(nlohmann::ordered_json&)>;

inline nlohmann::ordered_json read_meta(const std::filesystem::path& checkpoint) {
  return nlohmann::ordered_json::parse(read_text(checkpoint / "meta.json"));
}

inline void change_meta(const std::filesystem::path& checkpoint, const MetaChange& change) {
  auto meta = read_meta(checkpoint);
  change(meta);
  meta.erase("sha256");
  meta["sha256"] = sha256(meta.dump());
  std::ofstream(checkpoint / "meta.json") << meta;
}

inline void fill_weights(const std::filesystem::path& checkpoint, double value) {
  const auto file = checkpoint / "model.safetensors";
  auto tensors = from_safetensors(read_text(file), "t");
  for (auto& [name, tensor] : tensors) tensor.fill_(value);
  const auto bytes = to_safetensors(tensors);
  std::ofstream(file, std::ios::binary) << bytes;
  change_meta(checkpoint, [&](auto& meta) { meta["files"]["model.safetensors"] = sha256(bytes); });
}

// The values of a field in the lines of a split, in order.
inline std::vector<nlohmann::json> field_of(const std::filesystem::path& run, const std::string& split,
                                            const std::string& field) {
  std::vector<nlohmann::json> values;
  for (const auto& line : metrics_of(run, split)) values.push_back(line.at(field));
  return values;
}

}  // namespace metaformer
