#pragma once
// Checkpoints as other programs or accidents leave them: changed, with digests that are right.

#include <functional>

#include "base/digest.h"
#include "run/safetensors.h"
#include "support/workplace.h"

namespace metaformer {

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
