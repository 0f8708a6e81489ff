#include "text/overlap.h"

#include <fmt/format.h>
#include <unicode/uchar.h>
#include <utf8.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <regex>
#include <span>
#include <utility>

#include "base/text.h"
#include "text/word_tokenizer.h"

namespace metaformer {

namespace {

using Words = std::vector<std::string>;

// Functions that treat text as Python's str does: the published scorers are written in Python, and scores depend on its
// characters, white space and lower case.

// A byte that is not valid UTF-8 becomes the code point escaped_byte + byte, as with Python's error handler
// surrogateescape.
constexpr char32_t escaped_byte = 0xDC00;

// Calls `use(code point, its bytes)` in order.
template <class Use>
void for_each_character(std::string_view text, Use use) {
  for (auto at = text.begin(); at != text.end();) {
    const auto bad = utf8::find_invalid(at, text.end());
    while (at != bad) {
      const auto start = at;
      const char32_t point = utf8::unchecked::next(at);
      use(point, std::string_view(start, at));
    }
    if (at == text.end()) break;
    use(escaped_byte + static_cast<unsigned char>(*at), std::string_view(at, at + 1));
    ++at;
  }
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for_each_character(text, [&](char32_t point, std::string_view) { points += point; });
  return points;
}

// As str.isspace.
bool is_white_space(char32_t point) {
  return (point >= 0x1C && point <= 0x1F) || u_isUWhiteSpace(static_cast<UChar32>(point));
}

// The runs of characters for which `is_part` is true.
template <class IsPart>
Words split(std::string_view text, IsPart is_part) {
  Words words;
  bool is_within_word = false;
  for_each_character(text, [&](char32_t point, std::string_view bytes) {
    const bool was_within_word = std::exchange(is_within_word, is_part(point));
    if (!is_within_word) return;
    if (!was_within_word) words.emplace_back();
    words.back() += bytes;
  });
  return words;
}

// As str.split: the words between white space.
Words split_words(std::string_view text) {
  return split(text, [](char32_t point) { return !is_white_space(point); });
}

// As str.rstrip.
std::string_view without_trailing_space(std::string_view text) {
  const char* end = text.data();
  for_each_character(text, [&](char32_t point, std::string_view bytes) {
    if (!is_white_space(point)) end = bytes.data() + bytes.size();
  });
  return text.substr(0, static_cast<std::size_t>(end - text.data()));
}

// Every `step`-th code point from first to last is a capital of Unicode 16 or 17; its lower case lies `offset` further.
struct LowerCaseRange {
  std::int32_t first, last, offset, step;
};

// ICU 72 knows Unicode 15.
constexpr std::array<LowerCaseRange, 6> newer_capitals = {{{0x1C89, 0x1C89, 1, 1},
                                                           {0xA7CB, 0xA7CB, -42343, 1},
                                                           {0xA7CC, 0xA7DA, 1, 2},
                                                           {0xA7DC, 0xA7DC, -42561, 1},
                                                           {0x10D50, 0x10D65, 32, 1},
                                                           {0x16EA0, 0x16EB8, 27, 1}}};

// As str.lower, with the letters of Unicode 17. Bytes that are not valid stay.
std::string lower_case(std::string_view text) {
  std::string lowered;
  for (auto at = text.begin();; ++at) {
    const auto bad = utf8::find_invalid(at, text.end());
    std::string valid(at, bad);
    make_lowercase(valid);
    for (const auto point : code_points(valid)) {
      const auto capital = static_cast<std::int32_t>(point);
      auto number = capital;
      for (const auto& [first, last, offset, step] : newer_capitals)
        if (capital >= first && capital <= last && (capital - first) % step == 0) number += offset;
      utf8::unchecked::append(static_cast<char32_t>(number), std::back_inserter(lowered));
    }
    if (bad == text.end()) return lowered;
    lowered += *bad;
    at = bad;
  }
}

// Counts of n-grams that BLEU, chrF and ROUGE are made of. A sequence is a vector or string of tokens.
template <class Sequence>
std::int64_t count_ngrams(const Sequence& tokens, std::size_t n) {
  return tokens.size() < n ? 0 : static_cast<std::int64_t>(tokens.size() - n + 1);
}

template <class Sequence>
auto sorted_ngrams(const Sequence& tokens, std::size_t n) {
  std::vector<std::span<const typename Sequence::value_type>> ngrams;
  for (std::size_t start = 0; start + n <= tokens.size(); ++start) ngrams.emplace_back(tokens.data() + start, n);
  std::ranges::sort(ngrams, std::ranges::lexicographical_compare);
  return ngrams;
}

// The number of n-grams that both sequences have. Each counts as often as in the sequence that has it less often
// (clipped counts).
template <class Sequence>
std::int64_t count_common_ngrams(const Sequence& first, const Sequence& second, std::size_t n) {
  const auto ngrams = sorted_ngrams(first, n), others = sorted_ngrams(second, n);
  decltype(sorted_ngrams(first, n)) common;
  std::ranges::set_intersection(ngrams, others, std::back_inserter(common), std::ranges::lexicographical_compare);
  return static_cast<std::int64_t>(common.size());
}

// Element n - 1 of the counts is that of n-grams.
template <std::size_t orders, class Sequence>
NgramCounts<orders> count_all_ngrams(const Sequence& hypothesis, const Sequence& reference) {
  NgramCounts<orders> counts;
  for (std::size_t i = 0; i < orders; ++i) {
    counts.hypothesis[i] = count_ngrams(hypothesis, i + 1);
    counts.reference[i] = count_ngrams(reference, i + 1);
    counts.matches[i] = count_common_ngrams(hypothesis, reference, i + 1);
  }
  return counts;
}

// The version whose scores tests/python/compare_overlap.py compares BLEU and chrF with.
constexpr std::string_view sacrebleu_version = "2.6.0";

// The tokens of one line by the tokenizer "13a" of sacreBLEU (Post 2018, "A call for clarity in reporting BLEU
// scores"), which is that of WMT's mteval-v13a.pl: marks are tokens, and points, commas and hyphens stay within
// numbers. No token is empty or has white space. Bytes that are not valid UTF-8 are parts of words.
Words tokenize_13a(std::string_view line) {
  std::string text(line);
  for (const auto& [from, to] : {std::pair("<skipped>", ""),
                                 {"-\n", ""},
                                 {"\n", " "},
                                 {"&quot;", "\""},
                                 {"&amp;", "&"},
                                 {"&lt;", "<"},
                                 {"&gt;", ">"}})
    text = replaced(text, from, to);
  // As in mteval-v13a.pl, spaces go around marks other than the apostrophe, around stops and commas that are not
  // between digits, and around hyphens behind a digit. All of these are ASCII, so the expressions can match bytes.
  static const std::array<std::pair<std::regex, const char*>, 4> separated = {
      {{std::regex(R"(([ -&(-+/:-@\[-`{-~]))"), " $1 "},
       {std::regex("([^0-9])([.,])"), "$1 $2 "},
       {std::regex("([.,])([^0-9])"), " $1 $2"},
       {std::regex("([0-9])(-)"), "$1 $2 "}}};
  text = " " + text + " ";
  for (const auto& [pattern, with_spaces] : separated) text = std::regex_replace(text, pattern, with_spaces);
  return split_words(text);
}

// The words of UTF-8 text after lower-casing: runs of a-z and 0-9.
Words rouge_tokens(std::string_view text) {
  return split(lower_case(text), [](char32_t c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

double brevity_penalty(double hypothesis_length, double reference_length) {
  if (hypothesis_length >= reference_length) return 1;
  return hypothesis_length == 0 ? 0 : std::exp(1 - reference_length / hypothesis_length);
}

// The precisions of BLEU. They stay 0 for orders without n-grams. For the k-th order without matches, 1 / 2^k matches
// are counted.
std::array<double, bleu_orders> smoothed_precisions(const BleuStatistics& statistics) {
  std::array<double, bleu_orders> precisions{};
  double smoothed_matches = 1;
  for (std::size_t i = 0; i < precisions.size() && statistics.hypothesis[i] > 0; ++i) {
    if (statistics.matches[i] == 0) smoothed_matches /= 2;
    const auto matches = statistics.matches[i] > 0 ? static_cast<double>(statistics.matches[i]) : smoothed_matches;
    precisions[i] = 100 * matches / static_cast<double>(statistics.hypothesis[i]);
  }
  return precisions;
}

RougeScore score_of(std::int64_t common, std::int64_t in_hypothesis, std::int64_t in_reference) {
  if (common == 0) return {};
  const auto precision = static_cast<double>(common) / static_cast<double>(in_hypothesis);
  const auto recall = static_cast<double>(common) / static_cast<double>(in_reference);
  return {precision, recall, 2 * precision * recall / (precision + recall)};
}

std::int64_t common_subsequence_length(const Words& first, const Words& second) {
  // lengths[j]: the length for the words of `first` so far and the first j words of `second`.
  std::vector<std::int64_t> lengths(second.size() + 1);
  for (const auto& word : first) {
    std::int64_t diagonal = 0;  // lengths[j] before this word
    for (std::size_t j = 0; j < second.size(); ++j) {
      const auto above = lengths[j + 1];
      lengths[j + 1] = word == second[j] ? diagonal + 1 : std::max(above, lengths[j]);
      diagonal = above;
    }
  }
  return lengths.back();
}

constexpr std::array every_rouge = {&RougeScores::rouge_1, &RougeScores::rouge_2, &RougeScores::rouge_l};

}  // namespace

std::string bleu_signature(const BleuOptions& options) {
  return fmt::format("nrefs:1|case:{}|eff:no|tok:{}|smooth:exp|version:{}", options.lowercase ? "lc" : "mixed",
                     options.is_tokenized ? "none" : "13a", sacrebleu_version);
}

std::vector<std::string> bleu_tokens(std::string_view line, const BleuOptions& options) {
  const auto text = options.lowercase ? lower_case(line) : std::string(line);
  return options.is_tokenized ? split_words(text) : tokenize_13a(without_trailing_space(text));
}

BleuStatistics bleu_statistics(std::string_view hypothesis, std::string_view reference, const BleuOptions& options) {
  return count_all_ngrams<bleu_orders>(bleu_tokens(hypothesis, options), bleu_tokens(reference, options));
}

BleuScore bleu(const BleuStatistics& statistics) {
  BleuScore score{.brevity_penalty = brevity_penalty(static_cast<double>(statistics.hypothesis[0]),
                                                     static_cast<double>(statistics.reference[0]))};
  if (statistics.matches[0] == 0) return score;  // without common words there are no common n-grams
  score.precisions = smoothed_precisions(statistics);
  double sum_of_logarithms = 0;
  for (const auto precision : score.precisions) sum_of_logarithms += std::log(precision);  // log(0) is -inf, and BLEU 0
  score.bleu = score.brevity_penalty * std::exp(sum_of_logarithms / bleu_orders);
  return score;
}

std::string chrf_signature() {
  return fmt::format("nrefs:1|case:mixed|eff:yes|nc:{}|nw:0|space:no|version:{}", chrf_orders, sacrebleu_version);
}

ChrfStatistics chrf_statistics(std::string_view hypothesis, std::string_view reference) {
  auto characters = code_points(hypothesis), expected = code_points(reference);
  std::erase_if(characters, is_white_space);
  std::erase_if(expected, is_white_space);
  auto statistics = count_all_ngrams<chrf_orders>(characters, expected);
  for (std::size_t i = 0; i < chrf_orders; ++i)
    if (statistics.reference[i] == 0) statistics.hypothesis[i] = 0;
  return statistics;
}

double chrf(const ChrfStatistics& statistics) {
  constexpr double beta_squared = 4;
  double precisions = 0, recalls = 0;
  int used_orders = 0;
  for (std::size_t i = 0; i < chrf_orders; ++i) {
    if (statistics.hypothesis[i] == 0 || statistics.reference[i] == 0) continue;
    const auto matches = static_cast<double>(statistics.matches[i]);
    precisions += matches / static_cast<double>(statistics.hypothesis[i]);
    recalls += matches / static_cast<double>(statistics.reference[i]);
    ++used_orders;
  }
  if (precisions == 0) return 0;  // nothing matches
  return 100 * (1 + beta_squared) * precisions * recalls / (beta_squared * precisions + recalls) / used_orders;
}

RougeStatistics& RougeStatistics::operator+=(const RougeStatistics& other) {
  for (const auto score : every_rouge)
    for (const auto value : {&RougeScore::precision, &RougeScore::recall, &RougeScore::f1})
      (sums.*score).*value += (other.sums.*score).*value;
  lines += other.lines;
  return *this;
}

RougeStatistics rouge_statistics(std::string_view hypothesis, std::string_view reference) {
  const auto words = rouge_tokens(hypothesis), expected = rouge_tokens(reference);
  const auto score = [&](std::int64_t common, std::size_t n) {
    return score_of(common, count_ngrams(words, n), count_ngrams(expected, n));
  };
  return {.sums = {score(count_common_ngrams(words, expected, 1), 1), score(count_common_ngrams(words, expected, 2), 2),
                   score(common_subsequence_length(words, expected), 1)},
          .lines = 1};
}

RougeScores rouge(const RougeStatistics& statistics) {
  auto means = statistics.sums;
  for (const auto score : every_rouge)
    for (const auto value : {&RougeScore::precision, &RougeScore::recall, &RougeScore::f1})
      if (statistics.lines > 0) (means.*score).*value /= static_cast<double>(statistics.lines);
  return means;
}

}  // namespace metaformer
