#pragma once
// Text from a language model, token by token.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "infer/device_generator.h"
#include "infer/sampling_options.h"
#include "model/decoder.h"
#include "model/sequence_model.h"

namespace metaformer {

// Picks tokens from logits, in buffers that are kept.
class TokenPicker {
 public:
  explicit TokenPicker(const SamplingOptions& options) : options_(options) {}

  // With one uniform number in [0, 1).
  std::int32_t pick(std::span<const double> logits, double uniform);

 private:
  SamplingOptions options_;
  std::vector<std::int32_t> order_;
  std::vector<double> weights_;
};

// How many tokens of a prompt a model sees at most: its context, or with an endless state all.
std::int64_t most_prompt_tokens(const SequenceModel& model);

// "the prompt has 33 tokens; the model sees the last 32 of them (model.context)", or "" if it sees all.
std::string prompt_cut(const SequenceModel& model, std::size_t prompt_tokens);

// What the model sees while generating: all tokens so far or, past its context, a window, in which positions start
// again.
class ContextWindow {
 public:
  explicit ContextWindow(std::int64_t context, WindowKind kind = WindowKind::half);

  // Of a prompt that is longer than the context, its last `context` tokens.
  ContextWindow(std::int64_t context, WindowKind kind, std::span<const std::int32_t> prompt);

  // Returns true when the window was cut: everything in it must be encoded again.
  bool push(std::int32_t token);
  const std::vector<std::int32_t>& tokens() const { return tokens_; }

 private:
  std::int64_t context_;
  WindowKind kind_;
  std::vector<std::int32_t> tokens_;
};

// Several continuations of one prompt at once. Each draws from a stream of its own, so that the first is the same
// however many there are (but for draws that rounding decides).
class TextGenerator {
 public:
  // Keeps a reference to the model. `prompt` must not be empty; of a longer one the model sees its last
  // most_prompt_tokens. `make_graph` makes graphs for the device, which replace
  // the cache where they are expected to pay; by default CUDA graphs on a CUDA device and none on the CPU.
  TextGenerator(SequenceModel& model, const std::vector<std::int32_t>& prompt, const SamplingOptions& options,
                torch::Device device, std::int64_t samples = 1, MakeGraph make_graph = {});

  TextGenerator(const TextGenerator&) = delete;
  TextGenerator& operator=(const TextGenerator&) = delete;
  ~TextGenerator();

  // The next token of every sample, valid until the next call. Sets the number of threads to what the step is worth,
  // until destruction. On the CPU, with the cache and but for the first and where the window is cut, allocates nothing.
  const std::vector<std::int32_t>& next();

  // Of the cache; 0 without, as in a window that slides, and with graphs.
  std::int64_t cache_bytes() const;

 private:
  // Sets tokens_b_: from graphs on the device, false without them; or from logits on the host.
  bool take_from_device();
  void pick_tokens();
  void make_cache();  // the state and the decoder, for the windows as they are
  // Into logits_bv_, through the model or its decoder.
  void find_logits();
  void encode_windows();
  // Logits [b, v] of what follows tokens that the state has not seen; of all tokens where there is none.
  torch::Tensor encode(const torch::Tensor& ids_bc);
  void set_threads(std::size_t tokens);
  void start_window_again();

  SequenceModel& model_;
  SamplingOptions options_;
  torch::Device device_;
  std::int64_t parameters_;
  int threads_, threads_now_;                   // of the program, of the last step
  std::vector<ContextWindow> windows_;          // by sample, all of one length
  std::unique_ptr<DeviceGenerator> on_device_;  // none: the host picks every token
  std::unique_ptr<ModelState> state_;
  std::int64_t fresh_ = 0;  // newest tokens of each window that are not yet in the state
  std::uint64_t drawn_ = 0;
  std::unique_ptr<Decoder> decoder_;
  TokenPicker picker_;
  std::vector<double> logits_bv_;
  std::vector<std::int32_t> tokens_b_;
};

// Holds back text that may turn out to be the start of a stop string.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What can be shown now that `text` was generated. After a stop string was seen, everything before it has been
  // returned.
  std::string feed(const std::string& text);
  std::string rest() { return std::exchange(held_, {}); }
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace metaformer
