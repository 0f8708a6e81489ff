#pragma once
// Softmax attention on the CPU, forward and backward, one head of one sequence at a time. Of tiles of queries only the
// keys that a causal mask leaves are multiplied, and nothing of size tokens^2 is kept (Dao et al. 2022); sums are in
// float32 and in a fixed order, so that results do not depend on the number of threads.

#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/dropout.h"
#include "cpu/vector_code.h"

namespace metaformer {

// One head's rows: `rows` x `width` elements, neighbours within a row next to each other.
struct HeadRows {
  void* data = nullptr;
  std::int64_t stride = 0;  // in elements, between rows
  std::int64_t width = 0;
};

struct HeadAttention {
  bool bf16 = false;  // all rows are bfloat16, else float32
  bool causal = false;
  std::int64_t queries = 0, keys = 0;
  std::int64_t query_padding = 0, key_padding = 0;  // tokens behind those, which see nothing and which nothing sees
  std::int64_t offset = 0;                          // query i stands where key i + offset does; none is negative
  std::int64_t window = 0;  // a query sees only keys that stand less than so many from it; 0: all
  float scale = 1;
  // Stands in the softmax like the scaled score of one more key that every query sees, of value 0; -infinity: none.
  float sink = -std::numeric_limits<float>::infinity();
  DropoutMask dropout;            // of the weights
  std::uint64_t first_place = 0;  // of query 0 and key 0 in the mask (place_of_head of base/dropout_places.h)
  HeadRows q, k, v;  // k and v of the same data are one tensor: dk is then the whole gradient and dv unused
  HeadRows t;        // forward only
  // Per token, both or neither; a query sees keys of its own segment, one of -1 sees nothing.
  const std::int64_t *query_segment = nullptr, *key_segment = nullptr;
  // Per query, padding too: of the exponentials of its scores and of the sink; infinity where it sees nothing.
  float* log_sum = nullptr;
  // Added to the score of query i, of all C with padding, and key j: distance_q_i . distance_(C - 1 - i + j). Rows that
  // do not exist count as 0; as wide as q.
  HeadRows distance_q, distance;
  std::int64_t distances = 0;  // rows of `distance`; 0: nothing is added
  // Backward only:
  HeadRows dt, dq, dk, dv, ddistance_q, ddistance;

  bool shares_values() const { return k.data == v.data; }
};

// Room that a thread works in, kept from head to head.
class HeadWorkspace {
 public:
  // Room for that many floats, in at most 32 pieces; what was taken before is void.
  void begin(std::int64_t count);
  // A piece of `count` floats, whatever they hold, at a multiple of 64 bytes.
  float* take(std::int64_t count);
  // rewind(mark) frees what was taken after the mark.
  float* mark() const { return next_; }
  void rewind(float* mark) { next_ = mark; }

 private:
  std::vector<float> memory_;
  float* next_ = nullptr;
};

// Keys for which a tile of scores, 2 MiB, stays in the caches.
constexpr std::int64_t longest_host_attention = 16384;

// t and log_sum. NaN spreads to what sees it.
void attend_forward(const HeadAttention& head, HeadWorkspace& workspace, VectorCode code = widest_vector_code());

// dq, dk and, where values are not the keys, dv.
void attend_backward(const HeadAttention& head, HeadWorkspace& workspace, VectorCode code = widest_vector_code());

}  // namespace metaformer
