#pragma once
// Text from a language model, token by token.

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/sequence_model.h"
#include "ops/device.h"
#include "text/tokenizer.h"

namespace metaformer {

// The part of a text that stays when it outgrows the model's context: the last half of the context when it is full (one
// token in context / 2 encodes that much again), or all but the oldest token (every token encodes the whole context
// again, as in nanoGPT).
enum class WindowKind { half, slide };
constexpr std::array<std::string_view, 2> enum_names(WindowKind) { return {"half", "slide"}; }

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the most likely token
  std::int64_t top_k = 200;  // 0: all
  double top_p = 1;          // the most likely tokens whose total probability reaches this
  std::uint64_t seed = 1337;
  bool cached = true;  // false: encode the whole window for every token (slow; the same text)
  bool graphs = true;  // false: the host starts every operation, on a GPU too
  WindowKind window = WindowKind::half;
  std::vector<std::int32_t> never = {};  // ids that are not drawn, ascending: those without a token
};

// Rejects NaN and infinity. Errors (exit code 4): the model's numbers for `unanswered` of so many texts are not finite.
void require_finite_answers(std::int64_t unanswered, std::int64_t texts);

// The token that TokenPicker picks from each row of logits_bv, with one uniform number (float64, in [0, 1)) a row: long
// [b], on the device of the logits, without the host. A number within about 1e-15 of the edge between two tokens may
// pick the other, as sums are rounded differently. `never_n`: options.never on that device; undefined: none.
torch::Tensor pick_tokens_b(const torch::Tensor& logits_bv, const torch::Tensor& uniform_b,
                            const SamplingOptions& options, const torch::Tensor& never_n = {});

// As make_cuda_graph.
using MakeGraph = std::function<std::unique_ptr<DeviceGraph>(torch::Device, std::string& problem)>;

struct DeviceGenerationPlan {
  std::int64_t smallest_bucket = 32;  // tokens; fewer would save a GPU little
  std::int64_t steps_to_warm_up = 4;  // with each bucket, before its work is recorded
  std::int64_t first_chunk = 1;       // tokens that are generated before the host reads them; each chunk is twice the
  std::int64_t longest_chunk = 32;    // last one up to here, so that text appears at once
};

// Whether graphs give the text that a cache gives (SequenceModel::recordable_layers), and a GPU is expected to encode a
// context of `samples` sequences in less time than its host needs to start the operations of one token with a cache.
bool should_record(const SequenceModel& model, std::int64_t samples);

// Text on a device that does not wait for its host: recorded work encodes the window, picks a token and appends it.
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
  void step();
  void compute(std::int64_t bucket);  // all of it on the device

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

// "the prompt has 33 tokens; the model sees the last 32 of them (model.context)", or "" if it sees all.
std::string prompt_cut(const SequenceModel& model, std::size_t prompt_tokens);

// The tokens that the model sees while generating: all so far or, past its context, a window, in which positions start
// again.
class ContextWindow {
 public:
  // Takes the last `context` tokens of a longer prompt.
  explicit ContextWindow(std::int64_t context, WindowKind kind = WindowKind::half,
                         std::span<const std::int32_t> prompt = {});

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
  // Keeps a reference to the model. `prompt` must not be empty; of a longer one than its context the model sees the
  // end, with an endless state all. `make_graph` makes graphs for the device, which replace the cache where they are
  // expected to pay; by default CUDA graphs on a CUDA device and none on the CPU.
  TextGenerator(SequenceModel& model, const std::vector<std::int32_t>& prompt, const SamplingOptions& options,
                torch::Device device, std::int64_t samples = 1, MakeGraph make_graph = {});

  TextGenerator(const TextGenerator&) = delete;
  TextGenerator& operator=(const TextGenerator&) = delete;
  ~TextGenerator();

  // The next token of every sample, valid until the next call. Sets the number of threads to what the step is worth,
  // until destruction. On the CPU, with the cache and but for the first and where the window is cut, allocates nothing.
  const std::vector<std::int32_t>& next();

  // Bytes of the cache; 0 without one: in a sliding window, and with graphs.
  std::int64_t cache_bytes() const { return state_ ? state_->bytes() : 0; }

 private:
  // Sets tokens_b_: from graphs on the device, false without them; or from logits on the host.
  bool take_from_device();
  void pick_tokens();
  void make_cache();      // the state and the decoder, for the windows as they are
  void encode_windows();  // into logits_bv_
  // Logits [b, v] of what follows tokens that the state has not seen; of all tokens where there is none.
  torch::Tensor encode(const torch::Tensor& ids_bc);
  void set_threads(std::size_t tokens);

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

  // Returns the text that can be shown now that `text` was generated. After a stop string was seen, everything before
  // it has been returned.
  std::string feed(const std::string& text);
  std::string rest() { return std::exchange(held_, {}); }
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// The prompt where none is given: a line break, as nanoGPT starts, or the first token of a vocabulary that has none.
std::string default_prompt(const Tokenizer& tokenizer);

struct Sample {
  std::string prompt, text;  // text: without the prompt
  std::int64_t tokens = 0;
  SamplingOptions options;
};

// 200 tokens after the default prompt. A function of the weights, `seed` and `step`; draws from no stream that training
// uses, and leaves the model in the mode it was in. Nothing when a signal asks to stop meanwhile.
std::optional<Sample> write_sample(SequenceModel& model, const Tokenizer& tokenizer, torch::Device device,
                                   std::uint64_t seed, std::int64_t step);

// The text on lines of its own in the log.
void log_sample(std::int64_t step, const std::string& text);

}  // namespace metaformer
