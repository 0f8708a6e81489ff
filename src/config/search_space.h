#pragma once
// A space of configs to draw from: keys with distributions.
//
//   train.learning_rate: {log_uniform: [1e-4, 1e-2]}
//   model.dropout: {uniform: [0, 0.3]}
//   model.layers: {uniform_integer: [1, 4]}
//   train.batch_size: {log_uniform_integer: [8, 128]}
//   model.mixer.kind: {choice: [metric, quadratic]}

#include <filesystem>

#include "config/schema.h"

namespace metaformer {

enum class Spread { uniform, log_uniform, uniform_integer, log_uniform_integer, choice };
constexpr std::array<std::string_view, 5> enum_names(Spread) {
  return {"uniform", "log_uniform", "uniform_integer", "log_uniform_integer", "choice"};
}

struct SearchDimension {
  std::string key;  // "train.learning_rate"
  Spread spread = Spread::uniform;
  double low = 0, high = 0;          // both inclusive
  std::vector<std::string> choices;  // as YAML
};

// Errors (exit code 2) name file, line and column: no such config key, no such distribution, bounds that are not two
// numbers in order (above 0 for logarithms, whole for integers), no choice.
std::vector<SearchDimension> read_search_space(const std::filesystem::path& file);

// The draw number `index`: a value for each key, as YAML. A value is a function of (seed, key, index), so neither a
// longer sweep nor another key changes it. Numbers have four significant digits.
std::vector<std::pair<std::string, std::string>> draw(const std::vector<SearchDimension>& space, std::uint64_t seed,
                                                      std::uint64_t index);

}  // namespace metaformer
