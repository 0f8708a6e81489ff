#pragma once
// The task section of a config. A task that reads texts holds its `data` section, too.

#include <cstdint>
#include <string_view>
#include <variant>

#include "config/classification_config.h"
#include "config/data_config.h"
#include "config/schema.h"

namespace metaformer {

struct LanguageModelConfig {
  static constexpr std::string_view kind = "language_model";
  static constexpr std::string_view summary = "the next token of a text";
  std::int64_t sample_interval = 0;
  TextDataConfig data;  // the top-level section `data`
};

// The array sorter (minGPT): lists of `length` numbers in 0 ... digits - 1.
struct SortConfig {
  static constexpr std::string_view kind = "sort";
  static constexpr std::string_view summary = "the sorted copy of a list of numbers (minGPT)";
  std::int64_t length = 6;
  std::int64_t digits = 3;
};

using TaskConfig = std::variant<LanguageModelConfig, ClassificationConfig, SortConfig>;

template <class Visitor>
void visit(Visitor& field, LanguageModelConfig& c) {
  field("sample_interval", c.sample_interval, between(0, most_steps),
        "steps between texts that the model writes into the log and samples.jsonl; 0: never");
}

template <class Visitor>
void visit(Visitor& field, SortConfig& c) {
  field("length", c.length, between(1, 4096), "numbers in a list; model.context must hold 2 length - 1");
  field("digits", c.digits, between(2, 65536), "numbers are 0 ... digits - 1");
}

}  // namespace metaformer
