#pragma once
// The options of LSH attention, and what it costs. No torch.

#include "base/text.h"
#include "config/mixer_config.h"
#include "cpu/hashed_attention.h"

namespace metaformer {

// How many buckets a round of hashing has.
struct LshBuckets {
  std::int64_t count = 0;  // 0 stands for `auto`
  bool automatic() const { return count == 0; }
};

template <>
struct TextForm<LshBuckets> {
  static constexpr const char* expected = "an even number of buckets or 'auto'";
  static constexpr const char* type = "even integer, at least 2, or auto";
  static std::string write(const LshBuckets& buckets) {
    return buckets.automatic() ? "auto" : std::to_string(buckets.count);
  }
  static bool read(const std::string& text, LshBuckets& buckets) {
    buckets.count = 0;
    return text == "auto" || (parse_whole_number(text, buckets.count) == WholeNumber::valid && buckets.count >= 2 &&
                              buckets.count % 2 == 0);
  }
};

// What a token may see of the chunks that it looks at: all tokens, or those of its bucket.
enum class LshVisible { chunk, bucket };
template <>
struct EnumNames<LshVisible> {
  static constexpr std::array<std::string_view, 2> values = {"chunk", "bucket"};
};

struct LshOptions {
  static constexpr std::string_view kind = "lsh";
  static constexpr std::string_view summary =
      "softmax over tokens that hashing puts near each other, one projection for queries and keys (Reformer)";
  static constexpr bool chooses_by_whole_sequence = true;
  std::int64_t rounds = 4;
  std::int64_t chunk = 64;
  LshBuckets buckets;
  LshVisible visible = LshVisible::chunk;
  bool correct_duplicates = false;
  double score_std = 1;

  // Buckets of a model of `context` tokens: by default half a chunk falls into each.
  std::int64_t bucket_count(std::int64_t context) const {
    const auto half_chunks = 2 * context / chunk;
    return buckets.automatic() ? std::max<std::int64_t>(2, half_chunks + half_chunks % 2) : buckets.count;
  }

  // Tokens that one token is compared with, of a sequence of `context`.
  std::int64_t compared(std::int64_t context) const { return context <= chunk ? context : rounds * 2 * chunk; }

  MixerCost cost(const MixerShape& shape, const MixerLoad& load) const {
    const auto d = shape.width, n = shape.heads, seen = compared(load.context);
    const bool hashes = load.context > chunk;
    const auto width = static_cast<double>(d), rotated = static_cast<double>(rounds * bucket_count(shape.context)) / 2;
    // The kernel keeps a token's buckets and a number for each head. Operators keep for every round a query, two keys
    // and two values (of the window), and the result; weights, and a byte of mask for each.
    const bool has_kernel = hashes && chunk % hashed_chunk_step == 0 && !correct_duplicates && shape.dropout == 0;
    const auto copies = hashes ? 6 * rounds : 0, pairs = n * seen;
    const auto of_operators = copies * d + pairs + pairs / 4 + (shape.dropout > 0 ? pairs : 0);
    return {.parameters = 3 * (d * d + (shape.bias ? d : 0)),
            .operations = 6 * load.tokens * width * width + (hashes ? 2 * load.tokens * width * rotated : 0) +
                          4 * load.tokens * static_cast<double>(seen) * width,
            .activations = 5 * d + (has_kernel ? (2 * rounds + 1) * n : of_operators)};
  }
};

template <class Visitor>
void visit(Visitor& field, LshOptions& o) {
  field("rounds", o.rounds, between(1, 1024), "how many times tokens are hashed; what a token sees is the union");
  field("chunk", o.chunk, between(2, 1 << 20),
        "tokens of a chunk of the sorted sequence; each looks at its chunk and the one before. Sequences that are not "
        "longer are attended to in full");
  field("buckets", o.buckets, "of a round of hashing; auto: 2 model.context / chunk");
  field("visible", o.visible,
        "chunk: every token of the chunks that are looked at; bucket: those in the token's own bucket");
  field("correct_duplicates", o.correct_duplicates, "a token that is seen in several rounds counts once");
  field("score_std", o.score_std, positive, "standard deviation of the initial scores between different tokens");
}

class Mixer;
std::shared_ptr<Mixer> make(const LshOptions& options, const MixerShape& shape);

}  // namespace metaformer
