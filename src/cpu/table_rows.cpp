#include "cpu/table_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

// Lanes of `Count` x 16 features. The last ones of a width that is no multiple of 16 are read and written one by one.
template <int Count>
struct Block {
  Lanes lanes[Count];

  METAFORMER_INLINE static Block all(float x) {
    Block block;
    for (auto& lane : block.lanes) lane = every_lane(x);
    return block;
  }
  METAFORMER_INLINE static Block load(const float* from, std::int64_t features) {
    Block block = all(0);
    if (features == Count * lane_count)
      std::memcpy(&block, from, sizeof block);
    else
      std::memcpy(&block, from, static_cast<std::size_t>(features) * sizeof(float));
    return block;
  }
  METAFORMER_INLINE void add(const float* from, std::int64_t features) {
    const Block other = load(from, features);
    for (int i = 0; i < Count; ++i) lanes[i] += other.lanes[i];
  }
  METAFORMER_INLINE void store(void* to, std::int64_t features) const {
    if (features == Count * lane_count)
      std::memcpy(to, this, sizeof *this);
    else
      std::memcpy(to, this, static_cast<std::size_t>(features) * sizeof(float));
  }
};

// `token`: of all texts, in a row.
template <int Count>
METAFORMER_INLINE Block<Count> sum_of_region(const Regions& regions, std::int64_t token, std::int64_t feature,
                                             std::int64_t features) {
  const auto* region = regions.rows + token * regions.places;
  auto sum = Block<Count>::load(regions.bias + feature, features);
  for (std::int64_t place = 0; place < regions.places; ++place)
    if (region[place] >= 0) sum.add(regions.weight + region[place] * regions.width + feature, features);
  return sum;
}

// work.compute<width of a block>(first feature, features), for all features of a range. The work is no lambda: that
// would not be compiled for the CPU's instructions.
template <class Work>
METAFORMER_INLINE void for_each_block(const FeatureRange& range, const Work& work) {
  constexpr int wide = region_features / lane_count;
  auto first = range.first;
  for (; first + region_features <= range.last; first += region_features)
    work.template compute<wide>(first, region_features);
  for (; first < range.last; first += lane_count)
    work.template compute<1>(first, std::min<std::int64_t>(range.last - first, lane_count));
}

struct Vectors {
  const Regions& regions;
  float* y;

  template <int Count>
  METAFORMER_INLINE void compute(std::int64_t feature, std::int64_t features) const {
    const auto all = regions.texts * regions.tokens;
    for (std::int64_t token = 0; token < all; ++token) {
      auto sum = sum_of_region<Count>(regions, token, feature, features);
      for (auto& lane : sum.lanes) lane = lane < 0 ? Lanes{} : lane;
      sum.store(y + token * regions.width + feature, features);
    }
  }
};

struct Greatest {
  const Regions& regions;
  float* y;
  std::int32_t* tokens;

  template <int Count>
  METAFORMER_INLINE void compute(std::int64_t feature, std::int64_t features) const {
    for (std::int64_t text = 0; text < regions.texts; ++text) compute_text<Count>(text, feature, features);
  }

  template <int Count>
  METAFORMER_INLINE void compute_text(std::int64_t text, std::int64_t feature, std::int64_t features) const {
    auto greatest = Block<Count>::all(-std::numeric_limits<float>::infinity());
    IntLanes where[Count] = {};
    for (std::int64_t token = 0; token < regions.tokens; ++token) {
      const auto of_all = text * regions.tokens + token;
      if (regions.rows[of_all * regions.places] < 0) continue;
      const auto sum = sum_of_region<Count>(regions, of_all, feature, features);
      for (int i = 0; i < Count; ++i) {
        const IntLanes is_greater = (sum.lanes[i] > greatest.lanes[i]) | (sum.lanes[i] != sum.lanes[i]);  // or NaN
        greatest.lanes[i] = is_greater ? sum.lanes[i] : greatest.lanes[i];
        where[i] = is_greater ? IntLanes{} + static_cast<std::int32_t>(token) : where[i];
      }
    }
    Block<Count> places;
    for (int i = 0; i < Count; ++i) {
      const IntLanes is_none = greatest.lanes[i] <= 0;
      greatest.lanes[i] = is_none ? Lanes{} : greatest.lanes[i];
      places.lanes[i] = reinterpret_cast<Lanes>(is_none ? IntLanes{} - 1 : where[i]);
    }
    greatest.store(y + text * regions.width + feature, features);
    places.store(tokens + text * regions.width + feature, features);
  }
};

struct Gradients {
  const Regions& regions;
  const float* dy;
  const RegionSums& to;

  template <int Count>
  METAFORMER_INLINE void compute(std::int64_t feature, std::int64_t features) const {
    const auto all = regions.texts * regions.tokens;
    for (std::int64_t token = 0; token < all; ++token) {
      const auto* region = regions.rows + token * regions.places;
      const auto gradient = Block<Count>::load(dy + token * regions.width + feature, features);
      for (std::int64_t place = 0; place < regions.places; ++place) {
        if (region[place] < 0) continue;
        auto* sum = to.sums + to.slots[region[place]] * regions.width + feature;
        auto total = gradient;
        total.add(sum, features);
        total.store(sum, features);
      }
    }
  }
};

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void region_vectors(const Regions& regions, const FeatureRange& features, float* y) {
  for_each_block(features, Vectors{regions, y});
}

METAFORMER_EVERY_VECTOR_WIDTH
void greatest_region_vectors(const Regions& regions, const FeatureRange& features, float* y, std::int32_t* tokens) {
  for_each_block(features, Greatest{regions, y, tokens});
}

METAFORMER_EVERY_VECTOR_WIDTH
void add_region_gradients(const Regions& regions, const FeatureRange& features, const float* dy, const RegionSums& to) {
  for_each_block(features, Gradients{regions, dy, to});
}

void add_greatest_gradients(const Regions& regions, const FeatureRange& features, const float* dy,
                            const std::int32_t* tokens, const RegionSums& to) {
  for (std::int64_t text = 0; text < regions.texts; ++text) {
    for (auto feature = features.first; feature < features.last; ++feature) {
      const auto at = text * regions.width + feature;
      if (tokens[at] < 0) continue;
      const auto* region = regions.rows + (text * regions.tokens + tokens[at]) * regions.places;
      for (std::int64_t place = 0; place < regions.places; ++place)
        if (region[place] >= 0) to.sums[to.slots[region[place]] * regions.width + feature] += dy[at];
    }
  }
}

METAFORMER_EVERY_VECTOR_WIDTH
void adagrad_rows(const AdagradRows& table, std::int64_t first, std::int64_t last, float rate, float epsilon) {
  for (auto i = first; i < last; ++i) {
    const auto at = table.rows[i] * table.width;
    float* __restrict values = table.values + at, * __restrict sums = table.sums + at;
    const float* __restrict gradients = table.gradients + at;
    for (std::int64_t j = 0; j < table.width; ++j) {
      const float gradient = gradients[j], sum = sums[j] + gradient * gradient;
      sums[j] = sum;
      values[j] -= rate * gradient / (std::sqrt(sum) + epsilon);
    }
  }
}

}  // namespace metaformer
