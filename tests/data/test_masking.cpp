// The targets of a masked language model, and the tokens that it sees in their places.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "data/masking.h"
#include "data/text_dataset.h"
#include "support/catch.h"

namespace metaformer::test_masking {

namespace {

constexpr std::int64_t context = 128, vocabulary = 50;

// Tokens are numbers; every third number begins a word.
class Thirds : public Tokenizer {
 public:
  std::int64_t vocabulary_size() const override { return vocabulary; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<std::int32_t>(c));
    return ids;
  }
  bool begins_word(std::int32_t id, std::int32_t) const override { return id % 3 == 0; }
  std::string decode(std::span<const std::int32_t> ids) const override { return {ids.begin(), ids.end()}; }
  nlohmann::ordered_json to_json() const override { return {}; }
};

// Documents of these lengths, the same in both splits; a token is a function of its place.
TextDataset dataset_of(const std::vector<std::size_t>& lengths) {
  Corpus corpus{.path = "numbers.txt", .text = {}, .sha256 = {}};
  const Rng rng(1, RandomPurpose::noise);
  for (const auto length : lengths) {
    corpus.document_starts.push_back(corpus.text.size());
    for (std::size_t i = 0; i < length; ++i)
      corpus.text.push_back(static_cast<char>(rng.below(corpus.text.size(), vocabulary)));
  }
  corpus.held_out = corpus.text;
  corpus.held_out_document_starts = corpus.document_starts;
  TextDataConfig config;
  config.tokenizer = ByteTokenizerOptions{};
  config.separate_documents = true;
  std::shared_ptr<const Tokenizer> tokenizer = std::make_unique<Thirds>();
  return {corpus, config, context, tokenizer};
}

std::vector<TextPack> windows(std::int64_t count, std::int64_t first = 0) {
  std::vector<TextPack> packs;
  for (std::int64_t i = 0; i < count; ++i) packs.push_back({{.start = (first + i) * context, .length = context}});
  return packs;
}

struct Example {
  Thirds tokenizer;
  TextDataset dataset;
  Masking masking;

  explicit Example(const std::vector<std::size_t>& lengths, const MaskedLanguageModelConfig& config = {})
      : dataset(dataset_of(lengths)), masking(config, tokenizer) {}

  TokenRows plain(const std::vector<TextPack>& packs, Split split = Split::train) const {
    return dataset.rows_of(split, packs, /*separate=*/true);
  }
  TokenRows trained(const std::vector<TextPack>& packs, std::int64_t step, std::uint64_t seed = 3,
                    std::int64_t first_row = 0) const {
    auto rows = plain(packs);
    masking.mask_for_training(rows, packs, seed, step, first_row);
    return rows;
  }
  TokenRows evaluated(const std::vector<TextPack>& packs, Split split = Split::validation) const {
    auto rows = plain(packs, split);
    masking.mask_for_evaluation(rows, packs, split);
    return rows;
  }
};

// Bounds that a binomial variable crosses on either side with a probability of 1e-5.
std::pair<double, double> binomial_bounds(std::int64_t trials, double p) {
  constexpr double tail = 1e-5;
  const auto n = static_cast<double>(trials);
  std::pair<double, double> bounds = {-1, n + 1};
  double below = 0;
  for (double k = 0; k <= n; ++k) {
    const double log_probability =
        std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(p) + (n - k) * std::log1p(-p);
    below += std::exp(log_probability);
    if (below < tail) bounds.first = k;
    if (below > 1 - tail) {
      bounds.second = k;
      break;
    }
  }
  return bounds;
}

void check_binomial(std::int64_t count, std::int64_t trials, double p) {
  if (p == 0 || p == 1) {
    CHECK(count == (p == 0 ? 0 : trials));
    return;
  }
  const auto [least, most] = binomial_bounds(trials, p);
  CAPTURE(count, trials, p, least, most);
  CHECK(static_cast<double>(count) > least);
  CHECK(static_cast<double>(count) < most);
}

// The visible token at each place of these packs, or -2 if it is no target.
std::map<std::int64_t, std::int64_t> seen_by_place(const TokenRows& rows, const std::vector<TextPack>& packs) {
  std::map<std::int64_t, std::int64_t> seen;
  for (std::size_t row = 0; row < packs.size(); ++row) {
    auto at = row * static_cast<std::size_t>(rows.length);
    for (const auto& piece : packs[row])
      for (auto place = piece.start; place < piece.start + piece.length; ++place, ++at)
        seen[place] = rows.targets[at] < 0 ? -2 : rows.ids[at];
  }
  return seen;
}

}  // namespace

TEST_CASE("targets and their visible tokens are drawn with the configured probabilities", "[masking]") {
  const auto [fraction, masked, random] =
      GENERATE(table<double, double, double>({{0.15, 0.8, 0.1}, {0.4, 0.3, 0.6}, {0.15, 1, 0}, {0.9, 0, 0}}));
  const Example example({64 * context}, {.fraction = fraction, .masked = masked, .random = random});
  const auto packs = windows(64);
  const auto whole = example.plain(packs).ids;
  std::int64_t targets = 0, hidden = 0, changed = 0, all = 0;
  std::map<std::int64_t, std::int64_t> drawn;
  for (std::int64_t step = 0; step < 10; ++step) {
    const auto rows = example.trained(packs, step);
    targets += rows.target_count;
    all += std::ssize(rows.ids);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (rows.targets[i] < 0) continue;
      hidden += rows.ids[i] == example.masking.mask_token();
      changed += rows.ids[i] != example.masking.mask_token() && rows.ids[i] != whole[i];
      if (rows.ids[i] != example.masking.mask_token()) ++drawn[rows.ids[i]];
    }
  }
  check_binomial(targets, all, fraction);
  check_binomial(hidden, targets, masked);
  check_binomial(changed, targets, random * (vocabulary - 1) / vocabulary);  // a random token may be the same
  if (random > 0) CHECK(std::ssize(drawn) == vocabulary);
  CHECK(std::all_of(drawn.begin(), drawn.end(), [](const auto& entry) { return entry.first < vocabulary; }));
}

TEST_CASE("targets are tokens of the text, and all other tokens are unchanged", "[masking]") {
  const bool whole_words = GENERATE(false, true);
  const auto loss = GENERATE(LossUnit::token, LossUnit::sequence);
  const Example example({300, 5, 1, 90, 40}, {.fraction = 0.3, .whole_words = whole_words, .loss = loss});
  const std::vector<TextPack> packs = {{{0, 128}}, {{300, 5}, {305, 1}, {306, 90}}, {{396, 40}, {128, 60}}};
  const auto plain = example.plain(packs), rows = example.trained(packs, 4);
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < plain.ids.size(); ++i) {
    if (rows.targets[i] < 0) {
      CHECK(rows.ids[i] == plain.ids[i]);
    } else {
      places.push_back(static_cast<std::int64_t>(i));
      CHECK(rows.targets[i] == plain.ids[i]);
      CHECK(rows.segments[i] >= 0);
    }
  }
  CHECK(rows.places == places);
  CHECK(rows.target_count == std::ssize(places));
  CHECK(rows.segments == plain.segments);
  CHECK(rows.sequences == 6);
  if (loss == LossUnit::token) {
    CHECK(rows.target_weights.empty());
    return;
  }
  std::map<std::pair<std::size_t, std::int64_t>, float> sums;  // by row and segment
  for (std::size_t i = 0; i < rows.ids.size(); ++i)
    if (rows.segments[i] >= 0)
      sums[{i / static_cast<std::size_t>(rows.length), rows.segments[i]}] += rows.target_weights[i];
  CHECK(sums.size() == 6);
  for (const auto& [sequence, sum] : sums) CHECK(sum == Approx(1));
}

TEST_CASE("training draws depend on seed, step, row and place in the row, not on the division of a step", "[masking]") {
  const Example example({16 * context});
  const auto whole = example.trained(windows(8), 5);
  std::vector<std::int64_t> ids, targets;
  for (std::int64_t first = 0; first < 8; first += 2) {
    const auto part = example.trained(windows(2, first), 5, 3, first);
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    targets.insert(targets.end(), part.targets.begin(), part.targets.end());
  }
  CHECK(ids == whole.ids);
  CHECK(targets == whole.targets);
  std::set<std::vector<std::int64_t>> found = {whole.places};
  CHECK(found.insert(example.trained(windows(8), 6).places).second);
  CHECK(found.insert(example.trained(windows(8), 5, 4).places).second);
  CHECK(found.insert(example.trained(windows(8), 5, 3, 8).places).second);
  CHECK_FALSE(found.insert(example.trained(windows(8), 5).places).second);
  const auto one = example.trained(windows(2), 5);  // its two rows have different draws
  std::vector<std::int64_t> first_row, second_row;
  for (const auto place : one.places) (place < context ? first_row : second_row).push_back(place % context);
  CHECK(first_row != second_row);
}

TEST_CASE("an evaluation's draws depend on split and place, not on the packs", "[masking]") {
  const Example example({100, 40, 128, 60, 128, 90, 30, 12});
  const auto pieces = example.dataset.pieces(Split::validation, context);
  std::vector<TextPack> apart;
  for (const auto& piece : pieces) apart.push_back({piece});
  const PackedDocuments documents({pieces, pieces}, context, ShortestFirstPackingConfig{});
  const auto packed = documents.packs_at(Split::validation, 0, 0, documents.packs(Split::validation));
  REQUIRE(packed.size() < apart.size());
  const auto expected = seen_by_place(example.evaluated(apart), apart);
  CHECK(std::ssize(expected) == example.dataset.tokens(Split::validation).size());
  CHECK(seen_by_place(example.evaluated(packed), packed) == expected);
  CHECK(example.evaluated(apart).target_weights.empty());
  CHECK(seen_by_place(example.evaluated(apart, Split::train), apart) != expected);
  // A window with other bounds has the same targets in the common places.
  const std::vector<TextPack> shifted = {{{17, 80}}};
  for (const auto& [place, seen] : seen_by_place(example.evaluated(shifted), shifted))
    CHECK(seen == expected.at(place));
}

TEST_CASE("every sequence has a target with any probability", "[masking]") {
  const bool whole_words = GENERATE(false, true);
  const Example example({128, 1, 2, 3, 60, 128}, {.fraction = 1e-9, .whole_words = whole_words});
  const std::vector<TextPack> packs = {{{0, 128}}, {{128, 1}, {129, 2}, {131, 3}, {134, 60}}, {{194, 128}}};
  std::set<std::vector<std::int64_t>> different;
  for (std::int64_t step = 0; step < 5; ++step) {
    const auto rows = example.trained(packs, step);
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> targets;
    for (const auto place : rows.places)
      targets[{place / rows.length, rows.segments[static_cast<std::size_t>(place)]}].push_back(place);
    CHECK(targets.size() == 6);
    for (const auto& [sequence, of_sequence] : targets) {
      if (!whole_words) CHECK(of_sequence.size() == 1);
      CHECK(of_sequence.back() - of_sequence.front() == std::ssize(of_sequence) - 1);  // one word
    }
    different.insert(rows.places);
  }
  CHECK(different.size() == 5);
}

TEST_CASE("whole words are targets with all their pieces, with the probability of single tokens", "[masking]") {
  const Example example({64 * context}, {.whole_words = true});
  std::int64_t words = 0, chosen = 0;
  std::set<bool> hidden_alike;
  for (std::int64_t step = 0; step < 5; ++step) {
    const auto rows = example.trained(windows(64), step);
    const auto plain = example.plain(windows(64)).ids;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const bool begins = static_cast<std::int64_t>(i) % context == 0 || plain[i] % 3 == 0;
      const bool is_target = rows.targets[i] >= 0;
      words += begins;
      chosen += begins && is_target;
      if (begins) continue;
      CHECK(is_target == (rows.targets[i - 1] >= 0));
      if (is_target)
        hidden_alike.insert((rows.ids[i] == example.masking.mask_token()) ==
                            (rows.ids[i - 1] == example.masking.mask_token()));
    }
  }
  check_binomial(chosen, words, 0.15);
  CHECK(hidden_alike.size() == 2);  // the visible token is drawn for each piece
}

TEST_CASE("rows of the same shape are padded to the same number of places, and targets keep theirs", "[masking]") {
  const bool whole_words = GENERATE(false, true);
  const double fraction = GENERATE(0.15, 1.0);
  const Example example({8 * context}, {.fraction = fraction, .whole_words = whole_words});
  std::set<std::size_t> counts, padded;
  for (std::int64_t step = 0; step < 300; ++step) {
    auto rows = example.trained(windows(8), step);
    const auto places = rows.places;
    counts.insert(places.size());
    example.masking.pad_places(rows);
    padded.insert(rows.places.size());
    CHECK(std::equal(places.begin(), places.end(), rows.places.begin()));
    CHECK(std::all_of(rows.places.begin() + std::ssize(places), rows.places.end(), [](auto at) { return at == -1; }));
  }
  CHECK(padded.size() == 1);
  CHECK(counts.size() > (fraction < 1 ? 10 : 0));
  CHECK(*padded.begin() <= (fraction < 1 ? 400 : 8 * context));
}

}  // namespace metaformer::test_masking
