#pragma once
// Tasks that test a model's memory. The program draws their rows (data/recall.h).

#include "config/schema.h"

namespace metaformer {

// The keys that these tasks share. Each task also has `vocabulary`, and `answers()`: the largest number of targets in a
// row.
struct RecallRows {
  std::int64_t length = 64, examples = 0, held_out = 1000;
  double enough = 0;

  // `shortest`: the length of a row with its prompt and one answer.
  void visit_rows(auto& field, double shortest) {
    field("length", length, between(shortest, 1 << 20), "tokens in a row, at most model.context");
    field("examples", examples, between(0, most_steps),
          "training rows, repeated in the same order; 0: every step draws new rows");
    field("held_out", held_out, between(1, 1 << 20), "rows in the validation split, and as many in the test split");
    field("enough", enough, between(0, 1), "validation accuracy that ends training; 0: never");
  }
};

// The tokens between the queries, which have no meaning.
enum class Filler { zero, random };
constexpr std::array<std::string_view, 2> enum_names(Filler) { return {"zero", "random"}; }

// Multi-query associative recall (MQAR; Arora et al. 2024, "Zoology", section 4), and with `updates` the variant whose
// keys get another value.
struct RecallConfig : RecallRows, Named<"recall", "the values of keys, all shown at the beginning of a row (MQAR)"> {
  std::int64_t vocabulary = 8192, pairs = 4, updates = 0, queries = 1;
  double gap_power = 0.01;
  Filler filler = Filler::random;

  std::int64_t prompt_length() const { return 2 * (pairs + updates); }
  std::int64_t slots() const { return (length - prompt_length()) / 2; }  // places where a query may stand
  std::int64_t answers() const { return pairs * queries; }

  void visit(auto& field) {
    visit_rows(field, 4);
    field("vocabulary", vocabulary, between(4, 1'000'000),
          "tokens: the lower half without 0 are keys, the upper half values");
    field("pairs", pairs, between(1, 1 << 18), "different keys in a row, each with its own value");
    field("updates", updates, between(0, 1 << 18),
          "keys that are shown again with another value, which is then the target");
    field("queries", queries, between(1, 1 << 18), "queries for each key");
    field("gap_power", gap_power, above(0, 1),
          "a query stands g slots behind the pairs with a probability proportional to g^(gap_power - 1); 1: all slots "
          "are equally likely");
    field("filler", filler, "tokens between the queries: 0, or random tokens");
  }
};

// The targets of training; evaluations score the answers.
enum class TrainedTargets { answers, tokens };
constexpr std::array<std::string_view, 2> enum_names(TrainedTargets) { return {"answers", "tokens"}; }
constexpr const char* targets_help =
    "targets in training: the answers, or every next token; evaluations score the answers";

// Induction heads (Fu et al. 2023, "H3", section 3.1).
struct InductionConfig : RecallRows, Named<"induction", "the token after an earlier mark in the row"> {
  std::int64_t vocabulary = 20, triggers = 1;
  TrainedTargets targets = TrainedTargets::answers;

  std::int64_t answers() const { return 1; }

  void visit(auto& field) {
    visit_rows(field, 4);
    field("vocabulary", vocabulary, between(3, 1'000'000), "tokens; the last one is the mark");
    field("triggers", triggers, between(1, 1 << 18),
          "earlier marks in half of the rows, without those that would overlap; the other half has 1");
    field("targets", targets, targets_help);
  }
};

// Selective copying (Gu and Dao 2023, "Mamba", section 4.1; rows as in MAD, Poli et al. 2024).
struct SelectiveCopyConfig
    : RecallRows,
      Named<"selective_copy", "the tokens of a row without the blanks between them, in their order (MAD)"> {
  std::int64_t vocabulary = 16, tokens = 16;

  SelectiveCopyConfig() { length = 256; }
  std::int64_t answers() const { return tokens; }

  void visit(auto& field) {
    visit_rows(field, 4);
    field("vocabulary", vocabulary, between(3, 1'000'000), "tokens; the last two are the blank and the mark to copy");
    field("tokens", tokens, between(1, 1 << 18),
          "tokens to copy; a row has as many places for the copies after the mark");
  }
};

template <Literal name, Literal about>
struct BitsConfig : RecallRows, Named<name, about> {
  static constexpr std::int64_t vocabulary = 3;  // 0, 1 and the mark at the end

  std::int64_t answers() const { return 1; }

  void visit(auto& field) { visit_rows(field, 2); }
};
struct ParityConfig : BitsConfig<"parity", "whether the number of ones in a row is odd"> {};
struct MajorityConfig : BitsConfig<"majority", "whether more than half of a row are ones"> {};

// In-context recall (MAD, Poli et al. 2024): pairs of a key and a value all along the row.
struct InContextRecallConfig : RecallRows,
                               Named<"in_context_recall", "the values of keys that occurred earlier in the row (MAD)"> {
  std::int64_t vocabulary = 16, noise_vocabulary = 16;
  double noise = 0;
  TrainedTargets targets = TrainedTargets::answers;

  InContextRecallConfig() { length = 128; }
  std::int64_t symbols() const { return vocabulary - (noise > 0 ? noise_vocabulary : 0); }  // keys and values
  std::int64_t answers() const { return length / 2; }

  void visit(auto& field) {
    visit_rows(field, 4);
    field("vocabulary", vocabulary, between(2, 1'000'000), "tokens: half are keys, half are values");
    field("noise", noise, from_to_below(0, 1), "probability that a pair is replaced by two tokens of noise");
    field("noise_vocabulary", noise_vocabulary, between(1, 1'000'000),
          "tokens of noise, the last ones of the vocabulary; without noise there are none");
    field("targets", targets, targets_help);
  }
};

// Fuzzy in-context recall (MAD): keys and values of several tokens.
struct FuzzyRecallConfig : RecallRows,
                           Named<"fuzzy_recall", "in_context_recall with keys and values of one or more tokens (MAD)"> {
  std::int64_t vocabulary = 16, longest = 3;
  TrainedTargets targets = TrainedTargets::answers;

  FuzzyRecallConfig() { length = 128; }
  std::int64_t answers() const { return length; }

  void visit(auto& field) {
    visit_rows(field, 8);
    field("vocabulary", vocabulary, between(3, 1'000'000),
          "tokens: half are of keys, half of values, and the last one pads shorter rows at their start");
    field("longest", longest, between(1, 64),
          "largest number of tokens in a key or a value; keys of held-out rows have exactly this many");
    field("targets", targets, targets_help);
  }
};

// Memorisation (MAD): one fixed map for all rows.
struct MemorisationConfig : RecallRows, Named<"memorisation", "the values of keys, the same in every row (MAD)"> {
  std::int64_t vocabulary = 256;

  MemorisationConfig() { length = 32; }
  std::int64_t answers() const { return length / 2; }

  void visit(auto& field) {
    visit_rows(field, 2);
    field("vocabulary", vocabulary, between(3, 1'000'000),
          "tokens: half are keys, half are values, and the last one asks for the value of the key before it");
  }
};

// Compression (MAD): the model gives all tokens of a row back from the vector of its last one.
struct CompressionConfig : RecallRows,
                           Named<"compression", "all tokens of a row, from the vector of its last one (MAD)"> {
  std::int64_t vocabulary = 16;

  CompressionConfig() { length = 32; }
  std::int64_t answers() const { return length; }

  void visit(auto& field) {
    visit_rows(field, 2);
    field("vocabulary", vocabulary, between(2, 1'000'000), "tokens; the last one ends every row");
  }
};

}  // namespace metaformer
