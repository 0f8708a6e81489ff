#include "tasks/text_data.h"

#include <fmt/format.h>

#include <algorithm>

namespace metaformer {

TaskText::TaskText(const ExperimentConfig& given, bool offline, Codec given_codec)
    : config(given),
      corpus(load_corpus(*text_data_of(given.task), offline)),
      codec(std::move(given_codec)),
      dataset(corpus, *text_data_of(given.task), context_of(given.model), codec.tokenizer) {
  corpus.text = {};  // tokens are what is needed from here on
  corpus.held_out.reset();
  corpus.document_starts = corpus.held_out_document_starts = {};
}

std::optional<double> TaskText::unknown_share(Split split) const {
  const auto unknown = codec.tokenizer->unknown_id();
  if (!unknown) return std::nullopt;
  const auto& tokens = dataset.tokens(split);
  return static_cast<double>(std::count(tokens.begin(), tokens.end(), *unknown)) / static_cast<double>(tokens.size());
}

std::optional<double> TaskText::unknown_character_fraction(Split split) const {
  const auto unknown = dataset.unknown_characters(split);
  if (!unknown || !codec.tokenizer->unknown_id()) return std::nullopt;
  return static_cast<double>(*unknown) / static_cast<double>(dataset.characters(split));
}

nlohmann::ordered_json TextData::description() const {
  auto description = text_->corpus.description;
  description["train_tokens"] = count(Split::train);
  description["validation_tokens"] = count(Split::validation);
  description["vocabulary"] = codec().tokenizer->vocabulary_size();
  return description;
}

std::string TextData::summary() const {
  const auto share = text_->unknown_share(Split::validation);
  const auto characters = text_->unknown_character_fraction(Split::validation);
  return fmt::format("{} ({} + {} tokens, vocabulary of {} tokens{}{})", text_->corpus.path.string(),
                     count(Split::train), count(Split::validation), codec().tokenizer->vocabulary_size(),
                     share ? fmt::format("; unknown in validation: {:.2f}% of tokens", 100 * *share) : "",
                     characters ? fmt::format(", {:.2f}% of characters", 100 * *characters) : "");
}

}  // namespace metaformer
