#pragma once
// Parameters: names, initial values, one buffer for all.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/sequence_model.h"
#include "ops/autocast.h"
#include "ops/layer.h"

namespace metaformer {

// 3 for "transformer.blocks.3.mixer.output.weight" and, of recurrent layers, for "lstm.weight_hh_l3"; nullopt for other
// names.
std::optional<std::int64_t> block_number(std::string_view name);

// Whether `name` is `beginning`, or begins with it and a dot.
bool is_below(std::string_view name, std::string_view beginning);

// Whether `name` has `part` between two dots, or between a dot and one of its ends: "mixer.projection" is a part of
// "transformer.blocks.3.mixer.projection.weight".
bool has_part(std::string_view name, std::string_view part);

// A form of names in a config for parameters.
struct NameForm {
  bool (*matches)(std::string_view name, std::string_view given);
  std::string_view alternative;                        // to the whole name, for errors
  std::string (*short_name)(const std::string& name);  // in this form, for errors: "transformer.blocks.0"
};
extern const NameForm name_by_beginning;  // is_below
extern const NameForm name_by_part;       // has_part

// Throws Error (exit code 2) unless `given`, an entry of the config's `key`, names one of the parameters `names`. The
// message lists their short names. `what`: what they are.
void require_named(std::string_view key, const std::string& given, const std::vector<std::string>& names,
                   const NameForm& form, std::string_view what = "parameter");

// Initialises every parameter below `module` by its ParameterSpec, then scales the scores of mixers by
// Mixer::scale_initial_scores, for projections of that variance. Every parameter has its own random stream, a function
// of (seed, name), so that models which differ in their mixer share everything else.
void initialise(torch::nn::Module& module, std::uint64_t seed, double projection_variance);

// Initialises one parameter by its ParameterSpec, with the same stream.
void initialise(const SpecifiedParameter& parameter, std::uint64_t seed);

// GPT-2's initialisation (the specs of the layers): normal(0, 0.02), output projections of branches divided by
// sqrt(2 layers), biases 0, norms 1; embeddings of tokens and n-grams normal(0, model.embedding.std); layers of other
// models than transformers as in PyTorch, uniform(-1 / sqrt(inputs), 1 / sqrt(inputs)).
void initialise(SequenceModel& model, std::uint64_t seed);

// All parameters of a model in one flat buffer, and all gradients in another: the optimiser, clipping, reductions
// between processes and hand-written steps work on whole buffers; views give the single tensors by name.
class ParameterBuffer {
 public:
  struct View : ParameterSpec {
    std::string name;
    torch::Tensor parameter;  // aliases values(); its grad aliases gradients()
    std::int64_t offset = 0;  // in elements
    std::int64_t count = 0;
    double rate = 1;  // factor of the learning rate; 0: it does not change, and has no gradient

    // Whether the rows that have a gradient are listed.
    bool has_listed_rows() const { return gradient_rows != nullptr && !gradient_rows->has_all(); }
    std::int64_t row_width() const { return parameter.size(-1); }
  };

  // Moves the parameters (all of one type, on one device) into the buffer, in the order of Decay: tables of embeddings
  // come first, then matrices. Afterwards their model must not be moved to another device or type.
  explicit ParameterBuffer(const std::vector<SpecifiedParameter>& parameters);
  explicit ParameterBuffer(const torch::nn::Module& model) : ParameterBuffer(specified_parameters(model)) {}

  // Elements [first, first + count) of `whole`, aliasing them. A view that is cut at a border is flat. Rows with
  // gradients are not listed, and there is no copy of the weights.
  ParameterBuffer(const ParameterBuffer& whole, std::int64_t first, std::int64_t count);

  torch::Tensor& values() { return values_; }
  const torch::Tensor& values() const { return values_; }
  torch::Tensor& gradients() { return gradients_; }
  // These two skip rows without a gradient.
  void clear_gradients();
  void scale_gradients(const torch::Tensor& factor);
  const std::vector<View>& views() const { return views_; }

  // From now on keeps a copy of the parameters in this type, bfloat16 or float16, for products under autocast. Tables
  // with listed gradient rows, which no product reads, are not copied.
  void keep_half(torch::ScalarType type);
  HalfWeights* half() const { return half_.get(); }  // nullptr: there is no copy

  // Sets the rate of every view; to be called before an optimiser is made, which reads it.
  void set_rates(const std::function<double(const View&)>& rate_of);

  // The first view whose part of a buffer of this layout holds a NaN or an infinity; nullptr when none does.
  const View* first_not_finite(const torch::Tensor& buffer) const;

  // The part of another buffer of the same layout (an optimiser's moment) that belongs to a view, in its shape.
  static torch::Tensor part(const torch::Tensor& buffer, const View& view);

 private:
  template <class Use>
  void for_each_gradient(const Use& use);  // use(part of gradients_), for all parts that may be nonzero

  torch::Tensor values_, gradients_;
  std::vector<View> views_;
  std::unique_ptr<HalfWeights> half_;
};

}  // namespace metaformer
