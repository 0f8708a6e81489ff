#pragma once
// Text from a language model, token by token.

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "infer/step_graphs.h"
#include "model/transformer.h"
#include "text/tokenizer.h"

namespace metaformer {

// The tokens that stay in the window when a text exceeds the model's context. half: the last half of the context (it is
// encoded again once every context / 2 tokens). slide: all but the oldest token (the whole context is encoded again for
// every token, as in nanoGPT).
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

// Throws Error (exit code 4) if `unanswered` > 0: for so many of the `texts` the model's outputs are not finite.
void require_finite_answers(std::int64_t unanswered, std::int64_t texts);

// The token that TokenPicker picks from each row of logits_bv, with one uniform number (float64, in [0, 1)) per row.
// Returns long [b] on the device of the logits, without waiting for the host. A number within about 1e-15 of the
// boundary between two tokens may pick the other one, because sums are rounded differently. `never_n`: options.never on
// that device; undefined: none.
torch::Tensor pick_tokens_b(const torch::Tensor& logits_bv, const torch::Tensor& uniform_b,
                            const SamplingOptions& options, const torch::Tensor& never_n = {});

// Continues texts on a device that does not wait for its host (StepGraphs). A step computes one token for every text:
// it reads the newest one, adds its keys and values (or whatever the mixers remember) to the state, and picks the next
// token. The text is that of TokenPicker.
class DeviceGenerator {
 public:
  // Keeps references to the model, which has recordable steps and whose weights are on `device`, and to its new `state`
  // for `samples` texts.
  DeviceGenerator(SequenceModel& model, ModelState& state, std::int64_t samples, const SamplingOptions& options,
                  torch::Device device, DeviceGenerationPlan plan);
  DeviceGenerator(const DeviceGenerator&) = delete;
  DeviceGenerator& operator=(const DeviceGenerator&) = delete;

  // The token after newest_b, the last of `length` tokens of every text, of which the state has all but the last; valid
  // until the next call. `drawn`: the number of random numbers that were drawn for each text. It computes a chunk of
  // tokens, never more than fit into the context, which the next calls return. Empty as soon as the work could not be
  // recorded, which is logged once; the state is then to be reset. Call it in inference mode.
  std::span<const std::int32_t> next(std::span<const std::int32_t> newest_b, std::int64_t length, std::uint64_t drawn);

 private:
  void generate_chunk(std::span<const std::int32_t> newest_b, std::int64_t length, std::uint64_t drawn);
  // The host's random numbers for the next tokens, [t, b].
  torch::Tensor uniform_numbers_tb(std::int64_t count, std::uint64_t drawn) const;
  void compute(std::int64_t bucket);  // all of it on the device

  SequenceModel& model_;
  TransformerState& state_;
  SamplingOptions options_;
  std::int64_t samples_;
  torch::Tensor newest_b1_, place_1_;     // the newest token of every text, and its place in the text
  torch::Tensor draw_1_;                  // index of the next token in the chunk
  torch::Tensor never_n_;                 // ids that are not drawn; undefined: none
  torch::Tensor uniform_tb_, tokens_tb_;  // of a chunk of t tokens
  StepGraphs graphs_;                     // destroyed before the tensors, which the graphs use
  std::vector<std::int32_t> ready_;       // tokens of the chunk, [t, b]; the first read_ of them were returned
  std::size_t read_ = 0;
};

// Picks tokens from logits, and reuses its buffers.
class TokenPicker {
 public:
  explicit TokenPicker(const SamplingOptions& options) : options_(options) {}

  // `uniform`: a random number in [0, 1).
  std::int32_t pick(std::span<const double> logits, double uniform);

 private:
  SamplingOptions options_;
  std::vector<std::int32_t> order_;
  std::vector<double> weights_;
};

// "the prompt has 33 tokens; the model sees the last 32 of them (model.context)", or "" if it sees all.
std::string prompt_cut(const SequenceModel& model, std::size_t prompt_tokens);

// The tokens that the model sees during generation: all so far or, beyond its context, a window in which positions
// start again.
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

// Generates several continuations of one prompt together. Each has a random stream of its own, so that the first does
// not depend on their number (except for draws that rounding decides).
class TextGenerator {
 public:
  // Keeps a reference to the model. `prompt` must not be empty; of a prompt longer than its context the model sees only
  // the end, or all with an endless state. `plan`: of graphs, which continue from the cache if the model has recordable
  // steps. `decoder`: one that model.decoder(samples) has made in any precision, for this generator and, after its
  // destruction, for others; by default the generator makes one in float32. It has no effect without a cache.
  TextGenerator(SequenceModel& model, const std::vector<std::int32_t>& prompt, const SamplingOptions& options,
                torch::Device device, std::int64_t samples = 1, DeviceGenerationPlan plan = {},
                std::shared_ptr<Decoder> decoder = nullptr);

  TextGenerator(const TextGenerator&) = delete;
  TextGenerator& operator=(const TextGenerator&) = delete;
  ~TextGenerator();

  // The next token of every sample, valid until the next call. Sets the number of threads according to the work of the
  // step, until destruction. On the CPU with a cache it allocates no memory, except for the first token and when the
  // window is cut.
  const std::vector<std::int32_t>& next();

  // Bytes of the cache; 0 without one, as in a sliding window.
  std::int64_t cache_bytes() const { return state_ ? state_->bytes() : 0; }

 private:
  // Both set tokens_b_: take_from_device from graphs, pick_tokens from logits on the host. take_from_device returns
  // false without graphs, and if the window is not in the cache yet.
  bool take_from_device();
  void pick_tokens();
  void make_cache();      // makes the state, and a decoder if there is none, for the present windows
  void encode_windows();  // into logits_bv_
  // Logits [b, v] of the next token after `ids_bc`: tokens that are new to the state or, without a state, all tokens.
  torch::Tensor encode(const torch::Tensor& ids_bc);
  void set_threads(std::size_t tokens);

  SequenceModel& model_;
  SamplingOptions options_;
  torch::Device device_;
  std::int64_t parameters_;
  int threads_, threads_now_;           // of the program, of the last step
  std::vector<ContextWindow> windows_;  // by sample, all of one length
  std::unique_ptr<ModelState> state_;
  std::unique_ptr<DeviceGenerator> on_device_;  // null: the host picks every token
  std::int64_t fresh_ = 0;                      // newest tokens of each window that are not yet in the state
  std::uint64_t drawn_ = 0;
  std::shared_ptr<Decoder> decoder_;
  TokenPicker picker_;
  std::vector<double> logits_bv_;
  std::vector<std::int32_t> tokens_b_;
};

// Holds back text that may turn out to be the start of a stop string.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes generated text, and returns the text that can be shown now. Once a stop string is seen, everything before it
  // has been returned.
  std::string feed(const std::string& text);
  std::string rest() { return std::exchange(held_, {}); }
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// The prompt if none is given: a line break, as in nanoGPT, or the first token of a vocabulary without line breaks.
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

// Logs the text, on lines of its own.
void log_sample(std::int64_t step, const std::string& text);

}  // namespace metaformer
