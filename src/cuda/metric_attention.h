#pragma once
// Metric attention on the GPU: pointers in, pointers out, no tensors. For every head, with p the projected tokens and M
// the metric (any k x k form W does; a distance needs a symmetric one):
//
//   score_ij = scale (p_i M p_j),  or for a distance  -scale (p_i - p_j) M (p_i - p_j)
//   t_i = sum_j m_ij softmax_j(score_ij) v_j  over the visible j; 0 where none is visible
//
// with m_ij = 0 or 1 / (1 - probability) where weights are dropped, else 1, and v_j = p_j unless values are given.
// Scaled dot product attention is the identity with other keys and with values.
//
// Algorithm, memory and accuracy: docs/metric_attention.md.

#include <cstdint>

namespace metaformer::cuda {

// How elements are stored and multiplied. tf32 and fp32 are both stored as fp32; tf32 rounds the factors of products to
// 10 bits, fp32 keeps nearly all of them (four products for one).
enum class MetricElement { bf16, fp16, tf32, fp32 };

enum class MetricForm { dense, diagonal, identity };

// Distances in elements between neighbours of [b, n, c, k]; along k it is 1.
struct MetricStrides {
  std::int64_t batch = 0, head = 0, token = 0;
};

// Dropout of weights, those that DropoutMask (cpu/dropout.h) takes at their places (base/dropout_places.h) for
// the seed Rng::with_key(*key).bits(number).
struct MetricDropout {
  MetricDropout() = default;
  // probability: in [0, 1).
  MetricDropout(double probability, const std::int64_t* key_of_draw, std::uint64_t number_of_draw,
                std::int64_t first_row_of_step)
      : key(key_of_draw),
        number(number_of_draw),
        first_row(first_row_of_step),
        limit(static_cast<std::uint32_t>(probability * 0x1p32)),
        factor(static_cast<float>(1 / (1 - probability))) {}

  const std::int64_t* key = nullptr;  // in device memory, read by the kernels; none: nothing is dropped
  std::uint64_t number = 0;
  std::int64_t first_row = 0;  // of the batch, in its step
  std::uint32_t limit = 0;     // bits of a draw below it: dropped
  float factor = 1;            // of what is kept
};

// The tokens that look, or those that they look at.
struct MetricSide {
  std::int64_t tokens = 0;
  const void* p = nullptr;  // [b, n, tokens, k]
  MetricStrides p_strides;
  const std::int32_t* segments = nullptr;  // [b, tokens]; none: all one segment, 0
};

// The inputs that forward and backward share. Sizes may be 0, but queries need at least one key.
struct MetricInputs {
  MetricElement element = MetricElement::bf16;
  MetricForm form = MetricForm::dense;
  bool distance = false;
  bool causal = false;  // keys stand in order, and queries are the last of them: none looks at a key behind itself
  std::int64_t batch = 0, heads = 0;
  int width = 0;  // of a head, k: a multiple of 8 up to 128
  float scale = 0;
  const void* metric = nullptr;  // dense: [n, k, k]; diagonal: [n, k]; identity: none
  MetricSide queries, keys;      // a query sees keys of its segment, unless that is -1
  bool to_themselves = true;     // queries and keys are the same tokens, and have one gradient
  const void* values = nullptr;  // v, [b, n, e, k]; none: the keys' p. Not for every width (has_kernels_for_values)
  MetricStrides value_strides;
  MetricDropout dropout;
};

// With c queries and e keys. Every [b, n, c, k] without a strides member is contiguous, and so is every [b, n, c] of
// fp32.
struct MetricForward {
  MetricInputs in;
  void* t = nullptr;
  MetricStrides t_strides;
  float* log2_sum = nullptr;  // [b, n, c]: log2 sum_j exp(score_ij), +infinity where nothing is visible
  // [b, n, c, k]: p M, rounded, for backward; none: not written. Not for the identity, where it is p.
  void* q = nullptr;
  float* half_bias = nullptr;  // [b, n, e], distances only: -q_j . p_j / 2
  void* key_q = nullptr;       // [b, n, e, k], distances of keys that are other tokens only: as q
};

// One side of backward.
struct MetricGradient {
  const void* q = nullptr;
  MetricStrides q_strides;
  void* dp = nullptr;
  MetricStrides dp_strides;
  void* dq = nullptr;  // work space, [b, n, tokens, k]: the gradient of the metric is p^T dq; none for the identity
};

struct MetricBackward {
  MetricInputs in;
  MetricGradient queries;
  MetricGradient keys;  // of other tokens; its q and dq for distances only
  const void* t = nullptr;
  MetricStrides t_strides;
  const void* dt = nullptr;
  MetricStrides dt_strides;
  const float* log2_sum = nullptr;
  const float* half_bias = nullptr;
  void* dvalues = nullptr;  // where there are values
  MetricStrides dvalue_strides;
  float* dmetric = nullptr;  // [n, k, k], not symmetrised; none for the identity
  // Work space.
  float* dq_sum = nullptr;  // metric_dq_sums(in): sum_j dS_ij p_j, in an order of the kernels
  // [b, n, e, k]: what tokens as keys, and as values unless these are given, contribute to dp. Not for other keys
  // without a distance, whose dp it is.
  float* dkey = nullptr;
  float* delta = nullptr;       // [b, n, c]: dt_i . t_i
  float* row_sum = nullptr;     // [b, n, c], distances only: of dS, scaled
  float* column_sum = nullptr;  // [b, n, e], the same
  unsigned* turns = nullptr;    // metric_turns(in)
  float* partial = nullptr;     // metric_gradient_parts(in) of [n, k, k]
};

// Where the kernels of this executable run; on the host in tests, which emulate them.
enum class MetricDevice { none, cuda, host };
MetricDevice metric_kernel_device();

// How many partial metric gradients backward keeps, summed in a fixed order.
std::int64_t metric_gradient_parts(const MetricInputs& in);

// How many numbers of dq backward adds up, those of padded tokens and columns among them.
std::int64_t metric_dq_sums(const MetricInputs& in);

// Whether the kernels can take values of their own: wider tiles of 32 bits do not fit into shared memory.
constexpr int most_value_width_of_32_bits = 96;
constexpr bool has_kernels_for_values(MetricElement element, std::int64_t width) {
  const bool narrow = element == MetricElement::bf16 || element == MetricElement::fp16;
  return narrow || width <= most_value_width_of_32_bits;
}

// How many counters backward's blocks take their numbers and their turns by.
std::int64_t metric_turns(const MetricInputs& in);

// Run on `stream` (a cudaStream_t) of the current device and return at once. Equal inputs give equal bits. Errors
// (exit code 1): sizes the kernels cannot do, or what CUDA says of a launch.
void metric_forward(const MetricForward& forward, void* stream);
void metric_backward(const MetricBackward& backward, void* stream);

// Backward of a short context in one kernel, which keeps a head's tokens in shared memory, and a sum of the metric's
// gradient. In bf16 and fp16, of tokens that are their own keys, without a distance; it computes q itself.
constexpr std::int64_t most_short_context = 256;

// The bytes of shared memory that it takes; 0 where there is no such kernel.
int metric_short_bytes(const MetricInputs& in);

// Whether there is one that fits into the shared memory of the current device.
bool has_short_backward(const MetricInputs& in);

// How many partial metric gradients keep a GPU busy. At most one for each sequence of the batch.
std::int64_t metric_short_parts(const MetricInputs& in);

// As metric_backward. Of `backward` only `in`, dp of `queries`, t, dt, log2_sum, dvalues and dmetric, and for a metric
// `parts` of [n, k, k] in `partial`.
void metric_short_backward(const MetricBackward& backward, std::int64_t parts, void* stream);

}  // namespace metaformer::cuda
