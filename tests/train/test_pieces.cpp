// How a step is divided over processes.

#include "base/error.h"
#include "support/torch_catch.h"
#include "train/step.h"

namespace metaformer {

namespace {

// "0 1.0/2": the micro-batch 0, and the first half of 1.
std::string text_of(const std::vector<Piece>& pieces) {
  std::string text;
  for (const auto& [micro, part, parts] : pieces)
    text += (text.empty() ? "" : " ") + std::to_string(micro) +
            (parts == 1 ? "" : "." + std::to_string(part) + "/" + std::to_string(parts));
  return text;
}

}  // namespace

TEST_CASE("processes compute whole micro-batches as far as possible", "[pieces]") {
  CHECK(text_of(pieces_of(0, 1, 3)) == "0 1 2");
  CHECK(text_of(pieces_of(1, 2, 4)) == "2 3");
  CHECK(text_of(pieces_of(0, 4, 2)) == "0.0/2");
  CHECK(text_of(pieces_of(3, 4, 2)) == "1.1/2");
  CHECK(text_of(pieces_of(0, 2, 3)) == "0.0/2 0.1/2 1.0/2");
  CHECK(text_of(pieces_of(1, 2, 3)) == "1.1/2 2.0/2 2.1/2");
}

TEST_CASE("all pieces together are the step, each once and in order", "[pieces]") {
  for (const std::int64_t accumulate : {1, 2, 3, 4, 6})
    for (const int size : {1, 2, 3, 4, 8}) {
      std::int64_t next = 0, parts = 0;
      for (int rank = 0; rank < size; ++rank)
        for (const auto& piece : pieces_of(rank, size, accumulate)) {
          parts = piece.parts;
          CHECK(piece.micro * parts + piece.part == next++);
        }
      CHECK(next == accumulate * parts);
    }
}

TEST_CASE("rows that cannot be divided evenly are an error that names the numbers", "[pieces]") {
  ExperimentConfig config;
  config.train.batch_size = 6;
  config.train.accumulate = 2;
  CHECK_NOTHROW(require_equal_pieces(config, 2));
  CHECK_NOTHROW(require_equal_pieces(config, 4));
  CHECK_THROWS_WITH(require_equal_pieces(config, 8),
                    "the rows of a step, train.batch_size 6 x train.accumulate 2, cannot be divided over 8 processes: "
                    "train.batch_size must be a multiple of 4");
}

TEST_CASE("batches of tokens are never divided", "[pieces]") {
  ExperimentConfig config;
  config.task = SequenceToSequenceConfig{.batch_unit = BatchUnit::token};
  config.train.batch_size = 4096;
  config.train.accumulate = 4;
  CHECK_NOTHROW(require_equal_pieces(config, 1));
  CHECK_NOTHROW(require_equal_pieces(config, 4));
  CHECK_THROWS_WITH(require_equal_pieces(config, 8),
                    "train.accumulate 4 cannot be divided over 8 processes: with task.batch_unit token every process "
                    "takes whole batches, so train.accumulate must be a multiple of 8");
}

}  // namespace metaformer
