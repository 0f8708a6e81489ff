#include <algorithm>
#include <set>

#include "support/catch.h"
#include "text/ngram_features.h"

namespace metaformer::test_ngram_features {

TEST_CASE("the features of a text are its distinct n-grams", "[ngrams]") {
  const LinearConfig config{.ngrams = 3, .buckets = 1 << 26};
  const auto features = [&](const std::vector<std::int32_t>& ids) { return ngram_features(ids, config); };
  CHECK(features({}).empty());
  CHECK(features({5}).size() == 1);
  CHECK(features({5, 6, 7}).size() == 3 + 2 + 1);
  CHECK(features({5, 5, 5, 5, 5}).size() == 1 + 1 + 1);
  CHECK(features({5, 6}) != features({6, 5}));
  // 0 is a token like any other, and n-grams of different length differ.
  CHECK(features({0, 0}).size() == 2);
  const auto distinct = features({1, 2, 1, 2, 3});
  CHECK(std::is_sorted(distinct.begin(), distinct.end()));
  CHECK(std::set<std::uint32_t>(distinct.begin(), distinct.end()).size() == distinct.size());
  // {1, 2, 3}, {12, 21, 23}, {121, 212, 123}
  CHECK(distinct.size() == 9);
}

TEST_CASE("n-grams use all buckets, and never change their bucket, because saved weights depend on it", "[ngrams]") {
  CHECK(ngram_features(std::vector<std::int32_t>{1, 2}, {.ngrams = 2, .buckets = 1 << 22}) ==
        std::vector<std::uint32_t>{1544298, 1645075, 3563344});  // computed independently from the definition
  const auto buckets = GENERATE(1, 2, 1000);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < 20000; ++id) ids.push_back(id);
  const auto features = ngram_features(ids, {.ngrams = 1, .buckets = buckets});
  CHECK(features.size() == static_cast<std::size_t>(buckets));
  CHECK(features.back() == static_cast<std::uint32_t>(buckets - 1));
}

}  // namespace metaformer::test_ngram_features
