#pragma once
// What `bench attention --write-choices` measured on a device: how long the fused kernels of metric and quadratic
// attention take beside composed products. The backend `auto` goes by it (attention/kernel_choice.h). No torch.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"

namespace metaformer {

// How numbers are stored and multiplied: tf32 is stored as fp32.
enum class ChoiceType { bf16, fp16, tf32, fp32 };
template <>
struct EnumNames<ChoiceType> {
  static constexpr std::array<std::string_view, 4> values = {"bf16", "fp16", "tf32", "fp32"};
};

// What a choice depends on. Segments include padding.
struct ChoicePlace {
  ChoiceType type = ChoiceType::fp32;
  std::int64_t context = 0;
  std::int64_t head_width = 0;
  bool distance = false;
  bool segmented = false;
};

struct ChoiceCell {
  ChoicePlace place;
  double ratio = 0;  // time of the fused kernels / time of composed products, forward and backward
};

struct ChoiceTable {
  std::string device;  // its name, "NVIDIA H200"
  std::string date;    // "2026-11-23"
  std::vector<ChoiceCell> cells;

  // The ratio of the nearest cell with the same type, score and mask, by the logarithms of context and head width; of
  // equally near ones the first. Nothing where there is no such cell.
  std::optional<double> ratio(const ChoicePlace& place) const;
};

std::string to_json_text(const ChoiceTable& table);

// Throws Error (exit code 2) for a file that cannot be read, is damaged, or is of another version of this format.
ChoiceTable read_choice_table(const std::filesystem::path& path);

// Where `auto` looks for the table of a device: a file in the cache folder. Nothing without a cache folder.
std::optional<std::filesystem::path> choice_table_path(const std::string& device);

// The table there, or why it cannot be used; neither where there is no file.
struct FoundChoiceTable {
  std::optional<ChoiceTable> table;
  std::string problem;
};
FoundChoiceTable find_choice_table(const std::string& device);

}  // namespace metaformer
