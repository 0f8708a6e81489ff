#pragma once
// Time, memory and accuracy of mixers, by backend: of a layer, or of its core between its projections and its output.

#include <torch/types.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/mixer.h"
#include "bench/timing.h"

namespace metaformer {

struct AttentionShape {
  std::int64_t batch = 4, heads = 4, context = 256, head_width = 32;
  PositionsConfig positions = NoPositionsConfig{};  // only in layers with projections; only those that act on scores
  std::int64_t width() const { return heads * head_width; }
  MixerShape mixer_shape() const {
    return {.width = width(), .heads = heads, .context = context, .positions = positions};
  }
};

// The inputs of a core, leaves of the autograd graph: vectors of tokens, [b, n, c, k] in the memory layout of heads of
// a projection [b, c, n k], then the form of a mixer that has one.
//
//   scaled_dot_product                  q, k, v
//   quadratic, projected                p, W [n, k, k]
//   quadratic, full                     x [b, c, d], p, U [n, d, d]
//   metric, symmetric or psd            p, M [n, k, k]
//   metric, diagonal                    p, m [n, k]
//   metric, identity                    p
//   lsh                                 q, v
//   average_pooling, identity, none     x [b, c, d]
using CoreInputs = std::vector<torch::Tensor>;

using CoreMix = std::function<torch::Tensor(const CoreInputs& inputs, const Visibility& visibility)>;

// Normal numbers in float32, on the CPU the same in every process.
class NormalDraws {
 public:
  explicit NormalDraws(torch::Device device);
  torch::Tensor draw(const std::vector<std::int64_t>& sizes);

 private:
  torch::Device device_;
  torch::Generator generator_;  // of the CPU
};

// Inputs in float32, for scores of the standard deviation 1; if the mixer has its own values, these are last. Nothing
// if the benchmark does not know the mixer's core: with qk_norm, fixed_norm, and score as_published.
std::optional<CoreInputs> draw_core_inputs(const MixerConfig& mixer, const AttentionShape& shape, NormalDraws& draws);

// Computes t, [b, c, n k], by the backend of a mixer whose core is known. The backend must not be auto.
CoreMix make_core_mix(const MixerConfig& mixer, const AttentionShape& shape);

// Floating-point operations of a forward call: of a layer without masked pairs, and of its projections only.
double forward_operations(const MixerConfig& mixer, const AttentionShape& shape, bool causal);
double projection_operations(const MixerConfig& mixer, const AttentionShape& shape);

// The published metric kernel's algorithm, for comparison of time and memory: a table of one product per pair of tokens
// and pair of features, times the triangle of the metric.

// Bytes of the table: b n c (c + 1)/2 k (k + 1)/2 elements.
double pair_table_bytes(std::int64_t batch, std::int64_t heads, std::int64_t context, std::int64_t head_width,
                        std::int64_t element_bytes);

// r_bnce = p M p^T, unscaled (with the corrected formula), M as its lower triangle by rows, [n, k (k + 1)/2].
torch::Tensor pair_table_scores(const torch::Tensor& p_bnck, const torch::Tensor& triangle_nl);

// The passes that are timed. backward: in every round the time of both passes minus that of a forward pass that records
// its autograd graph, because a backward pass alone cannot be repeated unless this graph is kept.
enum class Direction { both, forward, backward };
constexpr std::array<std::string_view, 3> enum_names(Direction) { return {"both", "forward", "backward"}; }

struct AttentionRequest {
  std::vector<AttentionShape> shapes;
  std::vector<MixerConfig> mixers;  // each with its backend
  bool core = false;                // without projections, on inputs of draw_core_inputs
  bool library = false;             // also each backend of LibTorch's scaled dot product attention; for cores only
  std::vector<MixerConfig> around_library;  // cores by LibTorch's attention with kernels around it
  std::vector<MixerConfig> short_backward;  // cores by the fused kernels with their short backward pass
  bool pair_table = false;                  // also the published algorithm
  torch::ScalarType type = torch::kFloat;
  bool tf32 = false;  // on CUDA float32 may be multiplied as tf32, as with train.precision: tf32
  bool causal = true;
  Direction direction = Direction::both;
  std::int64_t rounds = 5;
  torch::Device device = torch::kCPU;
  // Makes the graphs that record work; by default CUDA graphs on a CUDA device.
  std::function<std::unique_ptr<DeviceGraph>()> make_graph = {};
};

struct AttentionResult {
  std::string mixer, backend;
  AttentionShape shape;
  std::string skipped;         // why it was not run, or ""
  double predicted_bytes = 0;  // of what did not fit, if that is the reason
  double ms = 0;               // median of the direction's time in one call; a difference may be negative
  TimedBy timed_by = TimedBy::clock;
  double teraflops = 0;         // per second, backward counted as two forwards; 0 if nothing is counted or timed
  std::int64_t peak_bytes = 0;  // above inputs and parameters, in one call
  std::int64_t kept_bytes = 0;  // between forward and backward, the output included
  std::optional<double> error;  // of the output, relative to float64; if a float64 reference is affordable
};

// Measures every mixer at every shape, a whole layer (projections included) or its core, on random input. The rounds of
// timing are interleaved, so that noise affects all equally; each measures as many calls as take a millisecond.
// `progress` gets a line for every shape that is done, and for every row that is not timed as a graph, with the reason.
using ShowLine = std::function<void(const std::string& line)>;
std::vector<AttentionResult> bench_attention(const AttentionRequest& request, const ShowLine& progress);

}  // namespace metaformer
