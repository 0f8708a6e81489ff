#pragma once
// Modules whose parameters are registered with their initialisation and weight decay.

#include <torch/nn/module.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace metaformer {

// GPT-2's standard deviation of initial weights (Radford et al. 2019).
constexpr double usual_std = 0.02;

// The rows of a table that have a gradient, for tables of which a batch reads few rows. Code that writes the gradient
// of a row lists the row here, so that clearing, norms and updates can skip all other rows, whose gradients are zero.
// Not thread-safe.
class GradientRows {
 public:
  explicit GradientRows(std::int64_t rows) : is_listed_(static_cast<std::size_t>(rows)) {}

  void add(std::int64_t row) {
    auto& is_listed = is_listed_[static_cast<std::size_t>(row)];
    if (is_listed == 0) listed_.push_back(row);
    is_listed = 1;
  }

  // Lists all rows, because the whole gradient is written.
  void add_all() { has_all_ = true; }

  void clear() {
    for (const auto row : listed_) is_listed_[static_cast<std::size_t>(row)] = 0;
    listed_.clear();
    has_all_ = false;
  }

  bool has_all() const { return has_all_; }
  const std::vector<std::int64_t>& listed() const { return listed_; }  // each once

 private:
  std::vector<std::uint8_t> is_listed_;
  std::vector<std::int64_t> listed_;
  bool has_all_ = false;
};

// From now on `rows`, which must live as long as the table, lists the rows to which backward passes give gradients.
// Sparse gradients of the table are then coalesced.
void list_gradient_rows(const torch::Tensor& table, GradientRows& rows);

// The initialisation of a parameter. given: the value with which it was registered. orthogonal: a matrix with
// orthonormal rows or columns, whichever are fewer, times `std`.
struct Init {
  enum class Kind { zeros, ones, normal, uniform, orthogonal, given };
  Kind kind = Kind::normal;
  double std = usual_std;                // of a normal distribution with mean 0
  double low = 0, high = 0;              // of a uniform distribution
  double (*function)(double) = nullptr;  // applied to the drawn values; nullptr: none

  static constexpr Init zeros() { return {.kind = Kind::zeros}; }
  static constexpr Init ones() { return {.kind = Kind::ones}; }
  static constexpr Init normal(double std = usual_std) { return {.kind = Kind::normal, .std = std}; }
  static constexpr Init uniform(double bound) { return {.kind = Kind::uniform, .low = -bound, .high = bound}; }
  static constexpr Init orthogonal(double factor) { return {.kind = Kind::orthogonal, .std = factor}; }
  static constexpr Init given() { return {.kind = Kind::given}; }
};

// GPT-2 divides the initial weights at the end of every residual branch by the square root of the number of branches.
inline double branch_output_std(std::int64_t branches) {
  return usual_std * (1 / std::sqrt(static_cast<double>(branches)));
}

// The weight decay that applies to a parameter; also the order in which ParameterBuffer keeps them.
enum class Decay { embeddings, matrices, none };

struct ParameterSpec {
  Init init;
  Decay decay = Decay::none;
  // The number of matrices of the same shape, stacked along the rows, each of which maps hidden vectors to hidden
  // vectors. Muon orthogonalises each of them separately. 0: none, as for embeddings, heads, and triangles stored as
  // vectors.
  std::int64_t hidden_matrices = 0;
  bool is_trained = true;  // false: it keeps its initial value
  // For a table: the list of rows that get gradients in a step, owned by its layer. All dimensions but the last count
  // as rows. nullptr: any element may get a gradient.
  GradientRows* gradient_rows = nullptr;
};

// A mixer's form of scores is drawn from N(0, 1); Mixer::scale_initial_scores scales it.
constexpr ParameterSpec score_form_spec{.init = Init::normal(1), .decay = Decay::matrices};

// While one lives, modules that this thread makes are on the meta device: their parameters and buffers have shapes, and
// take no memory.
class MetaModules {
 public:
  MetaModules();
  ~MetaModules();
  MetaModules(const MetaModules&) = delete;
  MetaModules& operator=(const MetaModules&) = delete;

 private:
  bool before_;
};

// The device of the tensors of new modules: the CPU, or meta while a MetaModules lives.
torch::Device module_device();

class Layer : public torch::nn::Module {
 public:
  // Registers a parameter on module_device(). Until it is initialised, it holds ones if these are its initial value,
  // otherwise zeros.
  torch::Tensor add_parameter(const std::string& name, at::IntArrayRef sizes, const ParameterSpec& spec);

  // Registers a parameter, which holds `value` until it is initialised.
  torch::Tensor add_parameter(const std::string& name, torch::Tensor value, const ParameterSpec& spec);

  const std::map<std::string, ParameterSpec>& specs() const { return specs_; }

 private:
  std::map<std::string, ParameterSpec> specs_;  // by name in this module
};

struct SpecifiedParameter {
  std::string name;  // path from the root
  torch::Tensor value;
  ParameterSpec spec;
};

// All parameters below `root`, in the order of named_parameters(). Throws Error (exit code 1) for one that no Layer
// registered.
std::vector<SpecifiedParameter> specified_parameters(const torch::nn::Module& root);

}  // namespace metaformer
