#pragma once
// The repeated step of generation as graphs of device work.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/sequence_model.h"
#include "ops/device.h"

namespace metaformer {

// A function like make_cuda_graph.
using MakeGraph = std::function<std::unique_ptr<DeviceGraph>(torch::Device, std::string& problem)>;

struct DeviceGenerationPlan {
  MakeGraph make_graph = {};          // empty: CUDA graphs on a CUDA device, none on the CPU
  std::int64_t smallest_bucket = 32;  // tokens; fewer would save a GPU little
  std::int64_t steps_to_warm_up = 4;  // for each bucket, before its work is recorded
  std::int64_t first_chunk = 1;       // tokens that the host reads first; few, so that text appears at once
  std::int64_t longest_chunk = 32;    // each chunk is twice as long as the last one, up to this
};

// The plan with a function that makes graphs; nullopt if the device has none, or the model no recordable steps.
std::optional<DeviceGenerationPlan> plan_with_graphs(DeviceGenerationPlan plan, const SequenceModel& model,
                                                     torch::Device device);

// Computes steps of generation on a device that does not wait for its host. A step reads the newest token of every
// sequence at its place, which it finds in the device's memory, and moves on by one place. There is one graph for each
// bucket of tokens that are attended to: for plan.smallest_bucket tokens, for twice as many and so on, and for the
// longest sequence. The host reads the results of a chunk of steps together. Buckets and chunks change no result.
class StepGraphs {
 public:
  // `compute`: computes a step with the shapes of `bucket` tokens that are attended to (TransformerState::read_at). Its
  // tensors must live as long as this. `longest`: tokens of the longest sequence, or attended to with an endless state.
  StepGraphs(std::function<void(std::int64_t bucket)> compute, std::int64_t longest, torch::Device device,
             DeviceGenerationPlan plan);
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // The number of steps of the next chunk, at most `most`.
  std::int64_t next_chunk(std::int64_t most);
  std::int64_t longest_chunk() const { return std::max(plan_.first_chunk, plan_.longest_chunk); }

  // Computes `count` steps, in the first of which the sequences have `length` tokens. Returns the number of computed
  // steps, which is lower if the work could not be recorded. This is logged once; it is not to be called again.
  std::int64_t run(std::int64_t length, std::int64_t count);
  bool failed() const { return failed_; }

 private:
  struct Bucket {
    std::int64_t tokens = 0, steps = 0;  // steps: so far
    std::unique_ptr<DeviceGraph> graph;
  };

  void step(std::int64_t length);
  Bucket& bucket_for(std::int64_t length);

  std::function<void(std::int64_t)> compute_;
  torch::Device device_;
  DeviceGenerationPlan plan_;
  std::int64_t chunk_ = 0;
  bool failed_ = false;
  std::vector<Bucket> buckets_;  // ascending
};

}  // namespace metaformer
