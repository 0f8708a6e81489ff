#pragma once
// The task of predicting the next token.

#include <optional>

#include "config/experiment_config.h"
#include "data/text_dataset.h"
#include "tasks/task.h"

namespace metaformer {

// A text as the data of a task.

// What the parts of a task over a text share.
struct TaskText {
  // Errors: those of load_corpus and TextDataset. An empty codec is made from the text.
  TaskText(const ExperimentConfig& given, bool offline, Codec given_codec);

  // Nothing where the tokenizer has no unknown token. The unknown token is easy to predict: the metrics say how
  // frequent it is.
  std::optional<double> unknown_token_fraction(Split split) const;
  // Nor where white space is dropped.
  std::optional<double> unknown_character_fraction(Split split) const;

  ExperimentConfig config;
  Corpus corpus;  // without its text
  Codec codec;
  TextDataset dataset;
};

class TextData : public TaskData {
 public:
  explicit TextData(std::shared_ptr<const TaskText> text) : text_(std::move(text)) {}

  const Codec& codec() const override { return text_->codec; }
  nlohmann::ordered_json description() const override;
  std::string summary() const override;

 private:
  std::size_t count(Split split) const { return text_->dataset.tokens(split).size(); }

  std::shared_ptr<const TaskText> text_;
};

// Predicting the next token of a text.

Task make_language_model_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
