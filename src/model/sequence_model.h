#pragma once
// The interface of models, their states and decoders.

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "cpu/decoding.h"
#include "model/batch.h"
#include "ops/named_tensors.h"
#include "ops/pass.h"

namespace metaformer {

class ModelState;

// Computes a language model in generation: each step is one token for each of several sequences.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Continues from the state that the model's forward has left. The state must live as long as this decoder, or until
  // the next call.
  virtual void resume(ModelState& state) = 0;

  // The logits [b, v] of the tokens after tokens_b, valid until the next call; advances the state. Throws Error if it
  // is full.
  virtual std::span<const float> step(std::span<const std::int32_t> tokens_b) = 0;
};

// Whether a decoder can read the model: all weights are float32, contiguous and on the CPU.
bool can_decode(const torch::nn::Module& model);

// A model's memory of sequences while they are read or generated.
class ModelState {
 public:
  virtual ~ModelState() = default;

  virtual std::int64_t length() const = 0;  // tokens seen

  // Forgets the sequences; keeps allocated buffers.
  virtual void reset() = 0;

  // Its whole content, by name; the tensors alias it.
  virtual NamedTensors tensors() const = 0;

  // The dimension of the sequences in a tensor of that name; a tensor without dimensions is the same for all sequences.
  virtual std::int64_t sequence_dimension(const std::string&) const { return 0; }

  // Loads the result of tensors() of a state of the same model and batch, on any device. Throws Error (exit code 2) if
  // the tensors are of another model or batch, or have more tokens than this state can hold; `source` names their
  // source.
  virtual void load(const NamedTensors& saved, const std::string& source) = 0;

  // Bytes of the tensors; those without dimensions, which are lengths, do not count.
  virtual std::int64_t bytes() const;
};

// The state as that of this kind of model; throws Error (exit code 1) if it is of another kind.
template <class State>
State& state_as(ModelState& state) {
  if (auto* own = dynamic_cast<State*>(&state)) return *own;
  throw Error(ExitCode::failure, "a model was given the state of another kind of model");
}

// Checks of the tensors that are given to load(). All throw Error (exit code 2) and name `source` and the tensor.
[[noreturn]] void fail_to_continue(const std::string& source, const std::string& what);

// Throws unless the tensor has this shape; any_size fits every size.
constexpr std::int64_t any_size = -1;
void require_shape(const std::string& source, const std::string& name, const torch::Tensor& tensor,
                   at::IntArrayRef expected);

class SavedTensors {
 public:
  // Tensors are copied to `device`, because those from a file are part of a larger buffer.
  SavedTensors(const NamedTensors& saved, std::string source, torch::Device device)
      : tensors_(saved.begin(), saved.end()), source_(std::move(source)), device_(device) {}

  bool contains(const std::string& name) const { return tensors_.contains(name); }

  // A tensor of this shape. Throws if it is missing, or has another shape.
  torch::Tensor take(const std::string& name, at::IntArrayRef shape);

  // A number of tokens, in a tensor without dimensions. Throws if it is missing, negative, above 2^53 or not a whole
  // number.
  std::int64_t take_length(const std::string& name);

  // All tensors whose names begin with `prefix`, under names without it; not copied.
  NamedTensors take_below(const std::string& prefix);

  // Throws if tensors are left over.
  void require_empty() const;

 private:
  torch::Tensor take(const std::string& name);

  std::map<std::string, torch::Tensor> tensors_;
  std::string source_;
  torch::Device device_;
};

// The interface between tasks and networks.
class SequenceModel : public torch::nn::Module {
 public:
  // Logits: [b, c, v] of a language model, or [t, v] of the places that a batch names; [l, classes] of a classifier.
  // With a state (of new_state or new_memory), ids are the tokens that follow those already seen, unless the batch
  // begins; the state is advanced.
  virtual torch::Tensor forward(const Batch& batch, ModelState* state, Pass& pass) {
    return logits_of(hidden(batch, state, pass));
  }

  // The two parts of a language model: hidden vectors [b, c, d], or [t, d] of the places that a batch names, and logits
  // of any [..., d]. Throw Error (exit code 1) for another model.
  virtual torch::Tensor hidden(const Batch&, ModelState*, Pass&) { fail_without("hidden vectors of tokens"); }
  virtual torch::Tensor logits_of(const torch::Tensor&) const { fail_without("logits of single tokens"); }
  // The weights that logits_of reads.
  virtual std::vector<torch::Tensor> head_weights() const { return {}; }

  // The result of forward without dropout.
  torch::Tensor evaluate(const Batch& batch, ModelState* state = nullptr);

  // The number of tokens that it sees at once; if it reads a text in order, that of a segment.
  virtual std::int64_t context() const = 0;

  virtual std::int64_t width() const = 0;  // of hidden vectors

  // Whether a batch continues the previous one, so that training passes a memory and evaluation a state.
  virtual bool remembers() const { return false; }

  // Whether a state takes any number of tokens, so that generated text is never cut.
  virtual bool has_endless_state() const { return remembers(); }

  // Whether a pass over one token with a state can be recorded once and repeated for later tokens
  // (TransformerState::read_at).
  virtual bool has_recordable_steps() const { return false; }

  // An empty state for `batch` sequences of up to `capacity` tokens, on the current device of the weights. Throws Error
  // (exit code 1) for a model that needs its whole input at once.
  virtual std::unique_ptr<ModelState> new_state(std::int64_t, std::int64_t) const { fail_without("state"); }

  // The memory that training carries from one segment of a text to the next; nullptr for a model that has none.
  virtual std::unique_ptr<ModelState> new_memory() const { return nullptr; }

  // Computes the results of `forward` for `batch` sequences token by token, faster, with the matrices of linear
  // layers in `precision`. nullptr if there is no decoder for this model or for the type or device of its weights.
  virtual std::unique_ptr<Decoder> decoder(std::int64_t /*batch*/,
                                           WeightPrecision /*precision*/ = WeightPrecision::fp32) const {
    return nullptr;
  }

 private:
  [[noreturn]] static void fail_without(const char* what) {
    throw Error(ExitCode::failure, std::string("this model has no ") + what);
  }
};

// Numbers of trained parameters.
struct ParameterCounts {
  std::int64_t all = 0;
  std::int64_t mixers = 0;
};
ParameterCounts count_parameters(const torch::nn::Module& model);

}  // namespace metaformer
