#include "text/sentencepiece_model.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "text/sentencepiece_tokenizer.h"

namespace metaformer {

namespace {

// Only the unigram model knows the n likeliest segmentations.
bool is_unigram(const std::string& model) {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<std::vector<int>> likeliest;
  return processor.LoadFromSerializedProto(model).ok() && processor.NBestEncode("a", 1, &likeliest).ok();
}

// What the usual rules of normalisation change: spaces in a row, forms of characters, case.
void require_restored_text(const Tokenizer& tokenizer, const std::string& source) {
  for (const std::string text : {"a", " a  b ", "\n\t a", "\uFF21", "e\u0301", "\u2460", "A"}) {
    const auto restored = tokenizer.decode(tokenizer.encode(text));
    if (restored != text)
      throw Error(ExitCode::data,
                  fmt::format("{}: its normaliser makes {} of {}; only a model that restores every text "
                              "is supported: of rule identity, that keeps spaces in a row",
                              source, in_quotes(restored), in_quotes(text)));
  }
}

// The fields of a message in the wire format of protocol buffers.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // False at the end, and at what is no field.
  bool next() {
    if (rest_.empty()) return false;
    const auto tag = varint();
    number = tag >> 3;
    value = 0;
    bytes = {};
    switch (tag & 7) {
      case 0:
        value = varint();
        return true;
      case 1:
        return skip(8);
      case 2:
        value = varint();
        bytes = rest_.substr(0, value);
        return skip(value);
      case 5:
        return skip(4);
      default:
        return false;
    }
  }

  std::uint64_t number = 0, value = 0;
  std::string_view bytes;

 private:
  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      result |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return result;
  }
  bool skip(std::uint64_t count) {
    if (count > rest_.size()) return false;
    rest_.remove_prefix(count);
    return true;
  }

  std::string_view rest_;
};

bool is_symbol(std::string_view piece_message) {
  constexpr std::uint64_t user_defined = 4;
  std::string_view piece;
  std::uint64_t type = 1;
  for (Fields fields(piece_message); fields.next();) {
    if (fields.number == 1) piece = fields.bytes;
    if (fields.number == 3) type = fields.value;
  }
  return type == user_defined && count_characters(piece) > 1;
}

}  // namespace

std::unique_ptr<SubwordTokenizer> read_sentencepiece(std::string model, const std::string& source) {
  const std::string kind(is_unigram(model) ? UnigramTokenizerOptions::kind : BpeTokenizerOptions::kind);
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(kind, Whitespace::kept, std::move(model), source);
  require_restored_text(*tokenizer, source);
  return tokenizer;
}

// Field numbers of sentencepiece_model.proto.
SentencePieceTraits traits_of_sentencepiece(std::string_view model) {
  SentencePieceTraits traits;
  for (Fields fields(model); fields.next();) {
    if (fields.number == 1) traits.has_symbols = traits.has_symbols || is_symbol(fields.bytes);
    if (fields.number == 2)
      for (Fields trainer(fields.bytes); trainer.next();)
        if (trainer.number == 24) traits.marks_ends = trainer.value != 0;
    if (fields.number == 3)
      for (Fields normalizer(fields.bytes); normalizer.next();)
        if (normalizer.number == 2) traits.normalises = !normalizer.bytes.empty();
  }
  return traits;
}

namespace {

using WordCounts = std::vector<std::pair<std::string, std::int64_t>>;

// Distinct words in byte order. In languages without spaces words are very long, and are cut.
WordCounts count_words(std::string_view text, Whitespace whitespace) {
  constexpr std::size_t longest = 1024;
  require_utf8(text);
  std::unordered_map<std::string_view, std::int64_t> counts;
  for_each_word(text, whitespace, [&](std::string_view word) {
    if (is_break(word[0]) || word == space_mark) return;
    while (word.size() > longest) {
      auto cut = longest;
      while (utf8::internal::is_trail(word[cut])) --cut;
      ++counts[word.substr(0, cut)];
      word.remove_prefix(cut);
    }
    ++counts[word];
  });
  WordCounts words(counts.begin(), counts.end());
  std::sort(words.begin(), words.end());
  return words;
}

// Gives the trainer "word\tcount". The unigram trainer's candidates are substrings that occur at least twice, whatever
// the counts, so a frequent word is given several times, with its count divided among them.
class WordIterator : public sentencepiece::SentenceIterator {
 public:
  explicit WordIterator(const WordCounts& words) : words_(words) { write(); }

  bool done() const override { return word_ == words_.size() || stop_signal() != 0; }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    if (++copy_ == copies()) {
      copy_ = 0;
      ++word_;
    }
    write();
  }

 private:
  std::int64_t copies() const { return std::min<std::int64_t>(words_[word_].second, 16); }
  void write() {
    if (word_ == words_.size()) return;
    const auto& [word, count] = words_[word_];
    value_ = fmt::format("{}\t{}", word, count * (copy_ + 1) / copies() - count * copy_ / copies());
  }

  const WordCounts& words_;
  std::size_t word_ = 0;
  std::int64_t copy_ = 0;
  std::string value_;
};

template <class Options>
std::unordered_map<std::string, std::string> trainer_arguments(const Options& options) {
  std::unordered_map<std::string, std::string> arguments = {
      {"model_type", std::string(Options::kind)},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"hard_vocab_limit", "false"},
      {"character_coverage", fmt::format("{}", options.character_coverage)},
      {"required_chars", std::string(space_mark)},
      {"input_format", "tsv"},
      {"seed_sentencepiece_size", "200000"},  // a fifth of the default: equally good here, and faster
      {"num_threads", "4"},                   // the order of sums, and so the model, depends on it
      {"unk_id", "0"},
      {"bos_id", "-1"},
      {"eos_id", "-1"},
      {"minloglevel", "3"},
  };
  if (options.whitespace == Whitespace::dropped) {
    arguments["normalization_rule_name"] = options.lowercase ? "nmt_nfkc_cf" : "nmt_nfkc";
  } else {
    arguments["normalization_rule_name"] = options.lowercase ? "nfkc_cf" : "identity";
    arguments["add_dummy_prefix"] = "false";
    arguments["remove_extra_whitespaces"] = "false";
    arguments["byte_fallback"] = "true";
    arguments["user_defined_symbols"] = "\n,\t,\r";
  }
  return arguments;
}

[[noreturn]] void refuse(const std::string& library_message, std::int64_t vocabulary) {
  static const std::regex too_small(R"(required_chars\. \d+ vs (\d+)\.)");
  if (std::smatch match; std::regex_search(library_message, match, too_small))
    throw Error(ExitCode::data,
                fmt::format("data.tokenizer.vocabulary {} is too small: the characters of the training text take "
                            "{}; set it to more than that, or lower data.tokenizer.character_coverage",
                            vocabulary, match[1].str()));
  throw Error(ExitCode::data, fmt::format("sentencepiece cannot learn from the training text: {}", library_message));
}

template <class Options>
std::string train(const Options& options, std::string_view text) {
  auto words = count_words(text, options.whitespace);
  if (words.empty()) throw Error(ExitCode::data, "the training text has no word to learn pieces from");
  // The library ends the process if a required character is in no word.
  const auto starts_with_space = [](const auto& word) { return word.first[0] == ' '; };
  if (options.whitespace == Whitespace::kept && std::none_of(words.begin(), words.end(), starts_with_space))
    words.emplace(words.begin(), " ", 1);
  const auto learn = [&] {
    WordIterator iterator(words);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(trainer_arguments(options), &iterator, &model);
    throw_if_stopped();
    if (!status.ok()) refuse(status.error_message(), options.vocabulary);
    return model;
  };
  // It also ends the process for other unexpected texts.
  return compute_in_child(learn, "sentencepiece cannot learn pieces from the training text");
}

}  // namespace

std::string train_sentencepiece(const UnigramTokenizerOptions& options, std::string_view text) {
  return train(options, text);
}

std::string train_sentencepiece(const BpeTokenizerOptions& options, std::string_view text) {
  return train(options, text);
}

}  // namespace metaformer
