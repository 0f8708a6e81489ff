#pragma once
// Text from a language model, token by token.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "model/decoder.h"
#include "model/sequence_model.h"

namespace metaformer {

// What of a text that outgrows the model's context is kept: the last half of the context, when it is full (one token in
// context / 2 encodes that much again), or all but the oldest token (every token encodes the whole context again, as in
// nanoGPT).
enum class WindowKind { half, slide };

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the most likely token
  std::int64_t top_k = 200;  // 0: all
  double top_p = 1;          // smallest set of likeliest tokens that holds this share
  std::uint64_t seed = 1337;
  bool cached = true;  // false: encode the whole window for every token (slow; the same text)
  WindowKind window = WindowKind::half;
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

// What the model sees while generating: all tokens so far or, past its context, a window, in which positions start
// again.
class ContextWindow {
 public:
  explicit ContextWindow(std::int64_t context, WindowKind kind = WindowKind::half);

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
  // Keeps a reference to the model. `prompt` must not be empty.
  TextGenerator(SequenceModel& model, const std::vector<std::int32_t>& prompt, const SamplingOptions& options,
                torch::Device device, std::int64_t samples = 1);

  TextGenerator(const TextGenerator&) = delete;
  TextGenerator& operator=(const TextGenerator&) = delete;
  ~TextGenerator();

  // The next token of every sample, valid until the next call. Sets the number of threads to what the step is worth,
  // until destruction. On the CPU, with the cache and but for the first and where the window is cut, allocates nothing.
  const std::vector<std::int32_t>& next();

  // Of the cache; 0 without, as in a window that slides.
  std::int64_t cache_bytes() const;

 private:
  // Into logits_bv_, through the model or its decoder.
  void find_logits();
  void encode_windows();
  void set_threads(std::size_t tokens);
  void start_window_again();

  SequenceModel& model_;
  SamplingOptions options_;
  torch::Device device_;
  std::int64_t parameters_;
  int threads_, threads_now_;           // of the program, of the last step
  std::vector<ContextWindow> windows_;  // by sample, all of one length
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
