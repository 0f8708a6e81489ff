#pragma once
// Text on a device that does not wait for its host: recorded work encodes the window, picks a token and appends it.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "infer/sampling_options.h"
#include "model/sequence_model.h"
#include "ops/device_graph.h"

namespace metaformer {

// As make_cuda_graph.
using MakeGraph = std::function<std::unique_ptr<DeviceGraph>(torch::Device, std::string& problem)>;

struct DeviceGenerationPlan {
  std::int64_t smallest_bucket = 32;  // tokens; fewer would save a GPU little
  std::int64_t steps_to_warm_up = 4;  // with each bucket, before its work is recorded
  std::int64_t first_chunk = 1;       // tokens that are generated before the host reads them; each chunk is twice the
  std::int64_t longest_chunk = 32;    // last one up to here, so that text appears at once
};

// Whether graphs give the text that a cache gives (SequenceModel::recordable_layers), and a GPU is expected to encode a
// context of `samples` sequences, logits of all its tokens included, in less time than its host needs to start the
// operations of one token with a cache. The latter is an estimate.
bool should_record(const SequenceModel& model, std::int64_t samples);

// For causal models: every token encodes the window again, without a cache, together with what lies behind its newest
// token in a bucket. There is one graph for each bucket: of plan.smallest_bucket tokens, of twice as many and so on,
// and of the context. The text is that of TokenPicker and ContextWindow, whatever the buckets and chunks.
class DeviceGenerator {
 public:
  // Keeps a reference to the model, whose weights are on `device`. Every sample starts from `window`, 1 to
  // model.context tokens.
  DeviceGenerator(SequenceModel& model, const std::vector<std::int32_t>& window, std::int64_t samples,
                  const SamplingOptions& options, torch::Device device, MakeGraph make_graph,
                  const DeviceGenerationPlan& plan = {});
  DeviceGenerator(const DeviceGenerator&) = delete;
  DeviceGenerator& operator=(const DeviceGenerator&) = delete;

  // The next token of every sample, valid until the next call. Empty from where the work could not be recorded, which
  // the log says once; the caller goes on without graphs. Call it in inference mode.
  std::span<const std::int32_t> next();

 private:
  struct Bucket {
    std::int64_t tokens = 0, steps = 0;  // steps: so far
    std::unique_ptr<DeviceGraph> graph;
  };

  void generate_chunk();
  void send_uniform_numbers();
  void settle_tables();
  void step();
  void record(Bucket& bucket);
  void compute(std::int64_t bucket);  // all of it on the device
  void cut_window();

  SequenceModel& model_;
  SamplingOptions options_;
  torch::Device device_;
  MakeGraph make_graph_;
  DeviceGenerationPlan plan_;
  std::int64_t samples_, context_, length_;  // length_: of the window
  std::int64_t chunk_ = 0;
  std::uint64_t drawn_ = 0;
  bool failed_ = false;
  torch::Tensor ids_bc_;                  // the window, and a column for the token that overfills it
  torch::Tensor never_n_;                 // ids that are not drawn; undefined: none
  torch::Tensor newest_1_, draw_1_;       // where the newest token is in the window, the next one in the chunk
  torch::Tensor uniform_tb_, tokens_tb_;  // of a chunk of t tokens
  std::vector<Bucket> buckets_;           // ascending; destroyed before the tensors, which the graphs use
  std::vector<std::int32_t> ready_;       // tokens of the chunk, [t, b], of which read_ were returned
  std::size_t read_ = 0;
};

}  // namespace metaformer
