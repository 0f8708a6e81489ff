// What `data stats` counts in pairs, against counts by hand.

#include "data/statistics.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace metaformer {

TEST_CASE("lengths, cuts, unknown tokens, copies, padding and sources of two splits are counted", "[stats]") {
  const TemporaryFolder folder;
  SequenceToSequenceConfig task;
  task.data.path = folder
                       .write("train.tsv",
                              "source\ttarget\n"
                              "a\tA\n"
                              "a\tA\n"
                              "a b\tA B\n"
                              "a b c d e f\tA\n"  // its source is cut
                              "a\tA B C D E F\n"  // its target: left out
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
  config.train.batch_size = 5;  // an epoch

  const auto stats = measure_pairs(*load_pairs(config, true, {}), config);
  const auto& train = stats[Split::train];
  CHECK(train.pairs == 5);
  CHECK(train.copies == 1);
  CHECK(train.source.all_tokens == 1 + 1 + 2 + 6 + 3);
  CHECK(train.source.tokens.longest == 6);
  CHECK(train.source.cut == 1);
  CHECK(train.target.all_tokens == 1 + 1 + 2 + 1 + 3);
  CHECK(train.target.cut == 0);
  CHECK(train.source.unknown_tokens == 0);
  const auto& validation = stats[Split::validation];
  CHECK(validation.copies == 1);
  CHECK(validation.source.unknown_tokens == 1);
  CHECK(validation.target.unknown_tokens == 2);
  CHECK(validation.target.cut == 1);
  CHECK(stats.validation_in_train == 2);
  CHECK(stats.test_in_train == 1);
  CHECK(stats.test_in_validation == 1);
  // With marks: sources 2, 2, 3, 5 (cut), 4 in rows of 5; targets 2, 2, 3, 2, 4 in rows of 4.
  CHECK(std::abs(stats.padding - (1 - (16.0 + 13) / (25 + 20))) < 1e-12);
  const auto json = to_json(stats);
  CHECK(json.at("splits").at("test").at("pairs") == 3);
  CHECK(json.at("sources_in_two_splits").at("validation_in_train") == 2);
}

}  // namespace metaformer
