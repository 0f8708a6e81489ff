#pragma once
// Rows of a table of which few are used, on the CPU in float32: their sums over regions of tokens, the gradients of
// those, and Adagrad's update. Sums go by features, so that of a large table the part that is read stays in the cache,
// and threads that share features do not share sums.

#include <cstdint>

namespace metaformer {

// The table and where its rows stand in texts.
struct Regions {
  const float* weight = nullptr;       // [rows of the table, width]
  const float* bias = nullptr;         // [width]
  const std::int32_t* rows = nullptr;  // [texts, tokens, places]; -1: nothing stands there
  std::int64_t width = 0, texts = 0, tokens = 0, places = 0;
};

// Features [first, last).
struct FeatureRange {
  std::int64_t first = 0, last = 0;
};

// Features that are best computed together; ranges that start at multiples of it are.
constexpr std::int64_t region_features = 64;

// y = max(0, bias + the rows at all places), [texts, tokens, width].
void region_vectors(const Regions& regions, const FeatureRange& features, float* y);

// The greatest y of each text and feature, [texts, width], and which token has it first; -1, and 0, where none is above
// 0. A token without a row at its first place is none.
void greatest_region_vectors(const Regions& regions, const FeatureRange& features, float* y, std::int32_t* tokens);

// Adds to `sums`, a row for each row of the table that has a slot, [slots, width].
struct RegionSums {
  const std::int32_t* slots = nullptr;  // by row of the table
  float* sums = nullptr;
};
// ... dy, [texts, tokens, width], at the rows of each token.
void add_region_gradients(const Regions& regions, const FeatureRange& features, const float* dy, const RegionSums& to);
// ... dy, [texts, width], at the rows of the token that had the greatest value.
void add_greatest_gradients(const Regions& regions, const FeatureRange& features, const float* dy,
                            const std::int32_t* tokens, const RegionSums& to);

struct AdagradRows {
  float* values = nullptr;  // [rows of the table, width], as are these:
  const float* gradients = nullptr;
  float* sums = nullptr;               // of squared gradients
  const std::int64_t* rows = nullptr;  // those to update
  std::int64_t width = 0;
};

// s <- s + g^2, w <- w - rate g / (sqrt(s) + epsilon) for rows[first ... last - 1].
void adagrad_rows(const AdagradRows& table, std::int64_t first, std::int64_t last, float rate, float epsilon);

}  // namespace metaformer
