// The source of the CUDA kernels of the gradient of embeddings, compiled for the emulator or for a GPU, against sums in
// float64.

#include <cmath>

#include "cuda/layer_case.h"
#include "support/catch.h"

namespace metaformer::test_embedding_kernel {

using namespace layer_cases;

namespace {

void check_embedding(const EmbeddingCase& c) {
  INFO(c.ids.size() << " tokens, vocabulary " << c.vocabulary << ", width " << c.width << " shift " << c.place.shift
                    << (c.place.at_the_end ? " at the end" : ""));
  const auto result = run_embedding_gradient(c);
  CHECK(result.is_alone);
  const auto dy = gradients_of(c);
  const auto width = static_cast<std::size_t>(c.width), rows = static_cast<std::size_t>(c.vocabulary);
  std::vector<double> sums(rows * width), sizes(rows * width);
  std::vector<std::size_t> counts(rows);
  for (std::size_t t = 0; t < c.ids.size(); ++t) {
    const auto row = static_cast<std::size_t>(c.ids[t]);
    ++counts[row];
    for (std::size_t i = 0; i < width; ++i) {
      sums[row * width + i] += static_cast<double>(dy[t * width + i]);
      sizes[row * width + i] += std::fabs(static_cast<double>(dy[t * width + i]));
    }
  }
  double worst = 0;
  std::size_t wrongly_touched = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    // A row is added in windows of 32 tokens.
    const double additions = counts[row] < 2 ? 0 : 33 + static_cast<double>(counts[row]) / 32;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      if (counts[row] == 0) {
        wrongly_touched += result.dtable[i] == untouched_number ? 0 : 1;
        continue;
      }
      const double error = std::fabs(static_cast<double>(result.dtable[i]) - sums[i]);
      const double relative = error / (additions * 0x1p-24 * sizes[i] + 1e-40);
      if (!(relative <= worst)) worst = relative;
    }
  }
  CHECK(worst <= 1);
  CHECK(wrongly_touched == 0);
}

}  // namespace

TEST_CASE("the gradient of an embedding is the sum over the tokens of each id", "[embedding]") {
  const std::int64_t vocabulary = GENERATE(1, 2, 65, 256, 257, 50257, 70000);
  for (const std::int64_t tokens : {0, 1, 31, 32, 33, 255, 256, 257, 1000, 3000})
    check_embedding({.vocabulary = vocabulary, .width = 3, .ids = drawn_ids(tokens, vocabulary)});
}

TEST_CASE("the gradient of an embedding takes every width and alignment", "[embedding]") {
  const bool at_the_end = GENERATE(false, true);
  for (const int width : {1, 4, 65, 127, 128, 129, 132, 384, 1000})
    for (const std::size_t shift : {0, 1, 2, 4})
      check_embedding({.vocabulary = 11,
                       .width = width,
                       .ids = drawn_ids(130, 11),
                       .place = {.shift = shift, .at_the_end = at_the_end}});
}

TEST_CASE("ids that fill windows exactly, or all of them, are added once", "[embedding]") {
  for (const std::int64_t run : {1, 16, 31, 32, 33, 64, 96, 2000}) {
    std::vector<std::int64_t> ids;
    for (std::int64_t t = 0; t < 2000; ++t) ids.push_back(t / run % 40);
    check_embedding({.vocabulary = 40, .width = 2, .ids = ids});
    for (auto& id : ids) id = 39 - id;
    check_embedding({.vocabulary = 40, .width = 2, .ids = ids});
  }
}

TEST_CASE("the gradient of an embedding sorts more tokens than its chunks have threads", "[embedding]") {
  check_embedding({.vocabulary = 65, .width = 1, .ids = drawn_ids(33'000, 65)});
  check_embedding({.vocabulary = 50257, .width = 1, .ids = drawn_ids(66'000, 50257)});
}

TEST_CASE("the order of threads changes no bit of the gradient of an embedding", "[embedding]") {
  const EmbeddingCase c{.vocabulary = 300, .width = 132, .ids = drawn_ids(1000, 300)};
  const auto first = run_embedding_gradient(c);
  for (std::uint64_t turn = 0; turn < 9; ++turn) {
    choose_schedule(turn);
    CHECK(run_embedding_gradient(c) == first);
  }
  choose_schedule(0);
}

}  // namespace metaformer::test_embedding_kernel
