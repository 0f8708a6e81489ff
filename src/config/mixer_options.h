#pragma once
// What the rest of the program asks of a mixer's options: their fields, whether they fit the model, what they cost.
// Each mixer says so beside its implementation, in attention/, with a struct that MixerOptionsOf wraps.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/option_fields.h"
#include "config/positions_config.h"

namespace metaformer {

// reference: the formula as written, with the whole score matrix. composed: batched products around the library's
// attention. fused: the CUDA kernels of cuda/. automatic: the one of them that supports the options and is expected to
// be the fastest (attention/kernel_choice.h); never the reference, unless there is no other.
enum class Backend { automatic, reference, composed, fused };
template <>
struct EnumNames<Backend> {
  static constexpr std::array<std::string_view, 4> values = {"auto", "reference", "composed", "fused"};
};

constexpr const char* backend_help =
    "reference: the formula as written; composed: batched products around the library's attention; fused: CUDA "
    "kernels, "
    "where the mixer has them; auto chooses";

// What a mixer needs to know of the model around it.
struct MixerShape {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;  // tokens of the sequences that the model is made for
  double dropout = 0;        // of scores, in training
  bool bias = false;         // in projections
  double output_std = 0.02;  // standard deviation of the initial weights of its output projection
  PositionsConfig positions = NoPositionsConfig{};  // of which those that act on scores concern a mixer
  bool crosses = false;  // its context is another sequence: what a decoder sees of an encoder
  std::int64_t head_width() const { return width / heads; }
};

// What a forward pass is given.
struct MixerLoad {
  std::int64_t context = 0;  // tokens of a sequence
  double tokens = 0;         // of all sequences
  double pairs = 0;          // of tokens of which one sees the other, of all sequences
};

struct MixerCost {
  std::int64_t parameters = 0;
  double operations = 0;         // multiplications and additions of a forward pass
  std::int64_t activations = 0;  // numbers that a token leaves for the backward pass
  bool keeps_pairs = false;      // holds numbers for every pair of tokens and head
};

// Why options are at odds with each other or with the model: `what` of the first of the keys ("model.mixer.score"), the
// others being those that could be changed in its place.
struct MixerProblem {
  std::vector<std::string> keys;
  std::string what;
};

class MixerOptions {
 public:
  virtual ~MixerOptions() = default;
  virtual std::unique_ptr<MixerOptions> clone() const = 0;
  virtual std::string_view kind() const = 0;
  virtual std::string_view summary() const = 0;
  virtual void visit_fields(FieldVisitor& field) = 0;

  // Those that these options have; a mixer with one implementation has composed.
  virtual std::vector<Backend> backends() const = 0;
  virtual Backend backend() const = 0;
  virtual void set_backend(Backend backend) = 0;  // of a mixer with one implementation: does nothing

  // Whether it mixes by scores, so that positions may act on them.
  virtual bool has_scores() const = 0;

  // Whether its context can be another sequence.
  virtual bool can_cross() const = 0;

  // Whether the tokens that a token sees are chosen by all tokens of a sequence, those behind it included. Then a
  // change of the future may change what is made of the past, though no token sees one behind it, and text that is
  // generated token by token is not what a pass over the whole text gives.
  virtual bool chooses_by_whole_sequence() const = 0;

  // Features of a query and a key, of a mixer with scores.
  virtual std::int64_t key_width(const MixerShape& shape) const = 0;

  virtual std::optional<MixerProblem> problem(const MixerShape& shape) const = 0;
  virtual MixerCost cost(const MixerShape& shape, const MixerLoad& load) const = 0;
};

inline MixerProblem no_such_backend(const MixerOptions& options) {
  std::vector<std::string> names = {"auto"};
  for (const auto backend : options.backends()) names.emplace_back(to_string(backend));
  return {.keys = {"model.mixer.backend", "model.mixer.kind"},
          .what = fmt::format("{} with these options has no backend '{}': set it to {}", options.kind(),
                              to_string(options.backend()), join_alternatives(names))};
}

// `Options` is plain data with `kind`, `summary`, a `visit` (config/schema.h) and `cost(shape, load)`; and, where they
// apply, `backend`, `backends()`, `problem(shape)`, `can_cross()`, `key_width(shape)` where that is not a head's,
// `static constexpr bool has_scores` and `chooses_by_whole_sequence`.
template <class Options>
class MixerOptionsOf final : public MixerOptions {
 public:
  explicit MixerOptionsOf(Options given) : options(std::move(given)) {}

  std::unique_ptr<MixerOptions> clone() const override { return std::make_unique<MixerOptionsOf>(*this); }
  std::string_view kind() const override { return Options::kind; }
  std::string_view summary() const override { return Options::summary; }
  void visit_fields(FieldVisitor& field) override {
    FieldSender sender(field);
    visit(sender, options);
  }

  std::vector<Backend> backends() const override {
    if constexpr (requires { options.backends(); }) return options.backends();
    return {Backend::composed};
  }
  Backend backend() const override {
    if constexpr (requires { options.backend; }) return options.backend;
    return Backend::composed;
  }
  void set_backend([[maybe_unused]] Backend backend) override {
    if constexpr (requires { options.backend; }) options.backend = backend;
  }

  bool has_scores() const override {
    if constexpr (requires { Options::has_scores; }) return Options::has_scores;
    return false;
  }
  bool can_cross() const override {
    if constexpr (requires { options.can_cross(); }) return options.can_cross();
    return false;
  }
  bool chooses_by_whole_sequence() const override {
    if constexpr (requires { Options::chooses_by_whole_sequence; }) return Options::chooses_by_whole_sequence;
    return false;
  }

  std::int64_t key_width(const MixerShape& shape) const override {
    if constexpr (requires { options.key_width(shape); }) return options.key_width(shape);
    return shape.head_width();
  }

  std::optional<MixerProblem> problem(const MixerShape& shape) const override {
    if constexpr (requires { options.problem(shape); })
      if (auto found = options.problem(shape)) return found;
    const auto known = backends();
    if (backend() == Backend::automatic || std::find(known.begin(), known.end(), backend()) != known.end())
      return std::nullopt;
    return no_such_backend(*this);
  }
  MixerCost cost(const MixerShape& shape, const MixerLoad& load) const override { return options.cost(shape, load); }

  Options options;
};

}  // namespace metaformer
