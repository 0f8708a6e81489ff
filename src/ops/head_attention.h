#pragma once
// One head of attention on the CPU: its operands, and the room that it is computed in.

#include <cstdint>
#include <vector>

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
  std::int64_t tokens = 0;
  std::int64_t padding = 0;  // tokens behind those, which see nothing and which nothing sees
  float scale = 1;
  float dropout = 0;       // share of the weights that become 0, the others growing by 1 / (1 - dropout)
  std::uint32_t seed = 0;  // of which; a function of (seed, query, key)
  HeadRows q, k, v;        // k and v of the same data are one tensor: dk is then the whole gradient and dv unused
  HeadRows t;              // forward only
  const std::int64_t* segment = nullptr;  // per token; tokens see those of their own segment, those of -1 see nothing
  float* log_sum =
      nullptr;  // per token, padding too: of the exponentials of its scores; infinity where it sees nothing
  // Backward only:
  HeadRows dt, dq, dk, dv;

  bool shares_values() const { return k.data == v.data; }
};

// Room that a thread works in, kept from head to head.
class HeadWorkspace {
 public:
  // Room for that many floats, in at most 24 pieces; what was taken before is void.
  void begin(std::int64_t count);
  // A piece of `count` floats, whatever they hold, at a multiple of 64 bytes.
  float* take(std::int64_t count);
  // What is taken after a mark can be taken again after going back to it.
  float* mark() const { return next_; }
  void rewind(float* mark) { next_ = mark; }

 private:
  std::vector<float> memory_;
  float* next_ = nullptr;
};

}  // namespace metaformer
