// The numbers of `data stats` against counts by hand.

#include <cmath>

#include "data/statistics.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer::test_statistics {

namespace {

using Numbers = std::vector<std::int64_t>;
using Rows = std::vector<std::pair<std::string, std::string>>;  // text and label

LabelledStats measure(const std::array<Rows, 3>& texts, const ExperimentConfig& config) {
  LabelledSplits splits;
  for (std::size_t split = 0; split < 3; ++split)
    for (const auto& [text, label] : texts[split]) splits.texts[split].push_back({text, label, "here"});
  splits.description["train"] = {{"path", "here"}, {"malformed", 7}};
  return measure_labelled_texts(std::move(splits), config);
}

// The same texts in training and validation, with these numbers of words.
std::array<Rows, 3> twice(const std::vector<int>& lengths) {
  Rows rows;
  for (const int count : lengths) {
    std::string text = "a";
    for (int i = 1; i < count; ++i) text += " a";
    rows.emplace_back(text, rows.size() % 2 == 0 ? "x" : "y");
  }
  return {rows, rows, {}};
}

ExperimentConfig word_config(std::int64_t context, std::int64_t min_count = 1) {
  ExperimentConfig config;
  config.task = ClassificationConfig{};
  data_of(config)->tokenizer = WordTokenizerOptions{.min_count = min_count};
  transformer(config).context = context;
  return config;
}

}  // namespace

TEST_CASE("the p-th percentile is the smallest length that p percent do not exceed", "[stats]") {
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 200; length > 0; --length) lengths.push_back(length);
  const auto numbers = [](const LengthStats& s) {
    return Numbers{s.median, s.percentile_90, s.percentile_95, s.percentile_99, s.longest};
  };
  CHECK(measure_lengths(lengths).mean == 100.5);
  CHECK(numbers(measure_lengths(lengths)) == Numbers{100, 180, 190, 198, 200});
  CHECK(numbers(measure_lengths({3, 1, 2})) == Numbers{2, 3, 3, 3, 3});
  CHECK(numbers(measure_lengths({5})) == Numbers{5, 5, 5, 5, 5});
  CHECK(measure_lengths({5}).mean == 5);
  CHECK(measure_lengths({}).longest == 0);
}

TEST_CASE("texts, classes, tokens, cut texts and unknown tokens are counted by split", "[stats]") {
  // The words a and b occur at least twice in training.
  const auto stats = measure({{{{"a b a", "yes"}, {"b", "no"}, {"c", "no"}}, {{"a d d a a", "yes"}}, {}}},
                             word_config(3, /*min_count=*/2));
  const auto numbers = [&](Split split) {
    const auto& of = stats[split];
    return Numbers{of.texts, of.all_tokens, of.unknown_tokens, of.cut, of.tokens.longest};
  };
  CHECK(stats.labels == std::vector<std::string>{"no", "yes"});
  CHECK(stats.vocabulary == 3);
  CHECK(stats.has_unknown);
  CHECK(numbers(Split::train) == Numbers{3, 5, 1, 0, 3});
  CHECK(numbers(Split::validation) == Numbers{1, 5, 2, 1, 5});
  CHECK(stats[Split::train].class_counts == Numbers{2, 1});
  CHECK(stats[Split::validation].class_counts == Numbers{0, 1});
  CHECK(stats[Split::test].texts == 0);
  const auto json = to_json(stats);
  CHECK(json.at("splits").at("train").at("classes").at("no") == 2);
  CHECK_FALSE(json.at("splits").contains("test"));
  CHECK(json.at("sources").at("train").at("malformed") == 7);
  auto of_bytes = word_config(64);  // has no unknown token
  data_of(of_bytes)->tokenizer = ByteTokenizerOptions{};
  const auto bytes = measure({{{{"ab", "x"}, {"cd", "y"}}, {{"\u00e9", "x"}}, {}}}, of_bytes);
  CHECK(bytes[Split::validation].all_tokens == 2);
  CHECK(to_json(bytes).at("splits").at("train").at("unknown_tokens").is_null());
}

TEST_CASE("exact copies within a split and between splits are counted", "[stats]") {
  const auto stats = measure({{{{"a", "x"}, {"a", "y"}, {"a", "x"}, {"b", "x"}, {"A", "y"}},
                               {{"b", "x"}, {"c", "y"}, {"b ", "x"}},
                               {{"a", "x"}, {"a", "x"}, {"b", "y"}, {"c", "y"}, {"d", "x"}}}},
                             word_config(8));
  CHECK(Numbers{stats[Split::train].copies, stats[Split::validation].copies, stats[Split::test].copies} ==
        Numbers{2, 0, 1});
  const auto& shared = stats.shared;
  CHECK(Numbers{shared.validation_in_train, shared.test_in_train, shared.test_in_validation} == Numbers{1, 3, 2});
}

TEST_CASE("padding fills batches up to their longest text, and is counted without the noise of training", "[stats]") {
  auto config = word_config(64);
  config.train.batch_size = 4;
  classification(config).bucketing = 1;
  CHECK(measure(twice({1, 2, 3, 10}), config).padding_unsorted == 24.0 / 40);
  transformer(config).context = 2;  // 1 + 2 + 2 + 2 tokens
  CHECK(measure(twice({1, 2, 3, 10}), config).padding_unsorted == 1.0 / 8);
  // Two lengths, in an epoch that is one bucket.
  transformer(config).context = 64;
  classification(config).bucketing = 8;
  std::vector<int> lengths(16, 1);
  lengths.resize(32, 9);
  const auto stats = measure(twice(lengths), config);
  CHECK(stats.padding_bucketed == 0);
  CHECK(stats.padding_unsorted > 0.1);
  CHECK(stats.padding_unsorted <= 0.5);
  // Each batch of a step is padded separately.
  config.train.batch_size = 1;
  config.train.accumulate = 4;
  CHECK(measure(twice({5, 5, 5, 5}), config).padding_unsorted == 0);
  auto noisy_config = word_config(64);
  classification(noisy_config).token_removal = classification(noisy_config).token_unknown = 0.4;
  const auto noisy = measure(twice({50, 50}), noisy_config);
  CHECK(noisy[Split::train].all_tokens == 100);
  CHECK(noisy[Split::train].unknown_tokens == 0);
  CHECK(noisy.padding_unsorted == 0);
}

TEST_CASE("with packing the packs of cut texts and of pieces of documents are counted", "[stats]") {
  const auto texts = twice({6, 20, 4, 3, 3});
  auto config = word_config(10);
  CHECK_FALSE(measure(texts, config).packs.has_value());
  data_of(config)->packing = ShortestFirstPackingConfig{{.depth = 2}};
  const auto packs = measure(texts, config).packs.value();
  CHECK(packs.sequences == 5);
  CHECK(packs.tokens == 26);  // 10, 6, 4, 3, 3
  CHECK(packs.packs == 4);    // 10; 6 + 4; 3; 3
  CHECK(packs.efficiency == Approx(26 / 40.0));
  CHECK(packs.factor == Approx(5 / 4.0));
  CHECK(packs.speed_up_limit == Approx(50 / 26.0));

  ExperimentConfig of_text;
  of_text.task = LanguageModelConfig{};
  transformer(of_text).context = 4;
  auto& data = *data_of(of_text);
  data.tokenizer = ByteTokenizerOptions{};
  data.packing = LeastSquaresPackingConfig{};
  Corpus corpus{.path = "t.jsonl", .text = "abcdefghijk", .sha256 = "0"};
  corpus.document_starts = {0, 8};  // 7 targets in pieces of 4 and 3, and 2 targets
  corpus.held_out = "ab";
  corpus.held_out_document_starts = {0};
  const auto json =
      to_json(measure_text(encode_corpus(corpus, *text_data_of(of_text.task), nullptr), of_text)).at("packing");
  CHECK(json.at("sequences") == 3);
  CHECK(json.at("tokens") == 9);
  CHECK(json.at("packs") == 3);

  // A masked language model reads every token, in pieces of 4, 4 and 3.
  MaskedLanguageModelConfig masked;
  masked.data = *text_data_of(of_text.task);
  of_text.task = masked;
  const auto of_masked = to_json(measure_text(encode_corpus(corpus, *text_data_of(of_text.task), nullptr), of_text));
  CHECK(of_masked.at("task") == "masked_language_model");
  CHECK(of_masked.at("packing").at("sequences") == 3);
  CHECK(of_masked.at("packing").at("tokens") == 11);
}

TEST_CASE("a text for a language model is counted by split", "[stats]") {
  ExperimentConfig experiment;
  experiment.task = LanguageModelConfig{};
  auto& config = *data_of(experiment);
  config.validation_fraction = 0.3;
  const auto measured = [&](const std::string& text) {
    const Corpus corpus{.path = "t.txt", .text = text, .sha256 = "0"};
    return measure_text(encode_corpus(corpus, *text_data_of(experiment.task), nullptr), experiment);
  };
  const auto stats = measured("abcab\u00e9abca");  // abcabéa and bca
  CHECK(stats[Split::train].characters == 7);
  CHECK(stats[Split::validation].characters == 3);
  CHECK(stats[Split::train].tokens == 7);
  CHECK(stats.vocabulary == 4);
  const auto of_fraction = [](double fraction) { return -fraction * std::log(fraction); };
  CHECK(stats[Split::train].unigram_entropy ==
        Approx(of_fraction(3. / 7) + of_fraction(2. / 7) + 2 * of_fraction(1. / 7)));
  CHECK(stats[Split::validation].unigram_entropy == Approx(std::log(3)));
  CHECK(stats[Split::train].unknown_characters == 0);
  config.tokenizer = WordTokenizerOptions{.min_count = 1};  // drops spaces, which have no token
  CHECK_FALSE(measured("ab ab cd ab")[Split::train].unknown_characters.has_value());
  config.tokenizer = ByteTokenizerOptions{};
  const auto bytes = measured("abcab\u00e9abca");
  CHECK(bytes[Split::train].tokens == 8);
  CHECK(bytes.vocabulary == 256);
  CHECK(to_json(bytes).at("splits").at("validation").at("unknown_tokens").is_null());
}

TEST_CASE("lengths, cuts, unknown tokens, copies, padding and common sources of pairs are counted", "[stats]") {
  const TemporaryFolder folder;
  SequenceToSequenceConfig task;
  task.data.path = folder
                       .write("train.tsv",
                              "source\ttarget\n"
                              "a\tA\n"
                              "a\tA\n"
                              "a b\tA B\n"
                              "a b c d e f\tA\n"  // the source is cut
                              "a\tA B C D E F\n"  // the target is too long: left out
                              "b b b\tB B B\n")
                       .string();
  task.data.validation_path = folder.write("validation.tsv", "source\ttarget\na\tZ\nq\tA B C D E\na\tZ\n").string();
  task.data.test_path = folder.write("test.tsv", "source\ttarget\nq\tA\nb b b\tB\nb\tB\n").string();
  task.data.tokenizer = WordTokenizerOptions{.min_count = 1};
  EncoderDecoderConfig model;
  model.context = 5;
  ExperimentConfig config;
  config.task = task;
  config.model = model;
  config.train.batch_size = 5;  // a whole epoch

  const auto stats = measure_pairs(*load_pairs(config, true, {}), config);
  const auto numbers = [](const TokenStats& s) {
    return Numbers{s.all_tokens, s.tokens.longest, s.cut, s.unknown_tokens};
  };
  const auto &train = stats[Split::train], &validation = stats[Split::validation];
  CHECK(Numbers{train.pairs, train.copies, validation.copies} == Numbers{5, 1, 1});
  CHECK(numbers(train.source) == Numbers{1 + 1 + 2 + 6 + 3, 6, 1, 0});
  CHECK(numbers(train.target) == Numbers{1 + 1 + 2 + 1 + 3, 3, 0, 0});
  CHECK(validation.source.unknown_tokens == 1);
  CHECK(validation.target.unknown_tokens == 2);
  CHECK(validation.target.cut == 1);
  const auto& shared = stats.shared;
  CHECK(Numbers{shared.validation_in_train, shared.test_in_train, shared.test_in_validation} == Numbers{2, 1, 1});
  // With marks: sources 2, 2, 3, 5 (cut), 4 in rows of 5; targets 2, 2, 3, 2, 4 in rows of 4.
  CHECK(std::abs(stats.padding - (1 - (16.0 + 13) / (25 + 20))) < 1e-12);
  const auto json = to_json(stats);
  CHECK(json.at("splits").at("test").at("pairs") == 3);
  CHECK(json.at("sources_in_two_splits").at("validation_in_train") == 2);
}

}  // namespace metaformer::test_statistics
