#pragma once
// Optimisers over a flat parameter buffer, the loss scale, and the average of the weights.

#include <memory>
#include <optional>
#include <variant>

#include "config/train_config.h"
#include "distributed/process_group.h"
#include "model/parameters.h"
#include "ops/named_tensors.h"

namespace metaformer {

// A tensor is a scalar on the parameters' device and read there: the host waits for nothing, and a graph that holds the
// update can be given another rate.
using LearningRate = std::variant<double, torch::Tensor>;

// Gradients of a scaled loss: float scalars on the parameters' device, which an optimiser reads in every step. Nothing:
// gradients of the loss itself.
struct GradientScale {
  std::optional<torch::Tensor> divisor;    // of the gradients
  std::optional<torch::Tensor> found_inf;  // 1: some are not finite, and the step must change nothing; 0: all are
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update from the gradients in the parameter buffer.
  virtual void step(const LearningRate& learning_rate) = 0;

  // Back to the state before the first step.
  virtual void reset() = 0;

  // The tensors that a checkpoint keeps, by names such as "first_moment.NAME of a parameter". The tensors alias the
  // state: what is copied into them is loaded; only an optimiser that shares its state with others has to load() it
  // then, out of tensors among which those of state() are.
  virtual NamedTensors state() const = 0;
  virtual void load(const NamedTensors&) {}

  // The name in state() of a tensor that holds a NaN or an infinity; "" when none does.
  virtual std::string first_not_finite() const;
};

// The optimiser that a config asks for. Keeps a reference to `parameters`. `scale`: of gradients of a scaled loss. Only
// matrices decay, tables of embeddings at a rate of their own.
//
// AdamW (Loshchilov and Hutter 2019) and Adam (Kingma and Ba 2015), whose weight decay is a part of the gradient; their
// state: "first_moment.NAME" and "second_moment.NAME" by parameter name, and "steps".
// SGD with momentum (Sutskever et al. 2013), as torch.optim.SGD; its state: "momentum.NAME", nothing without momentum.
// Adagrad (Duchi, Hazan and Singer 2011), as torch.optim.Adagrad without a decaying rate; "squared_gradients.NAME".
// Muon (Jordan et al. 2024) for hidden matrices, "momentum.NAME"; AdamW for everything else.
std::unique_ptr<Optimizer> make_optimizer(ParameterBuffer& parameters, const TrainConfig& config,
                                          const GradientScale& scale = {});

// About U V' for each matrix U S V' of x_mrc, for Muon: the singular values end between 0.7 and 1.2 (those near 0
// somewhere below). `iterations` of the quintic polynomial of Jordan et al. 2024, "Muon", after a division by the
// Frobenius norm; 0 stays 0. The products are in `type`, and so is the result. Cheaper where r <= c.
torch::Tensor orthogonalise(const torch::Tensor& x_mrc, std::int64_t iterations, torch::ScalarType type);

// Dynamic loss scaling (Micikevicius et al. 2018): keeps small gradients within fp16's range. The loss is multiplied by
// the scale, and gradients are divided by it. A step whose gradients are not finite changes nothing but the scale. All
// of it stays on the device, so that a graph can hold it. As torch.amp.GradScaler, but the scale does not fall below 1,
// where fp16 gains nothing from it.
class LossScale {
 public:
  explicit LossScale(torch::Device device);

  const torch::Tensor& factor() const { return factor_; }
  GradientScale of_gradients() const { return {.divisor = factor_, .found_inf = found_inf_}; }

  // Takes the norm of the scaled gradients; returns that of the gradients.
  torch::Tensor unscaled_norm(const torch::Tensor& scaled_norm);

  // Scalars of the step whose norm came last: whether it is to be skipped; whether even the smallest scale was too
  // large.
  torch::Tensor is_skipped() const { return found_inf_.to(torch::kBool, /*non_blocking=*/false, /*copy=*/true); }
  torch::Tensor is_exhausted() const { return is_skipped().logical_and_(factor_ <= smallest); }

  // After the update: twice as large after 2,000 steps without an overflow, half as large after one.
  void adapt();

  void reset();
  NamedTensors state() const;  // as Optimizer::state

 private:
  static constexpr double initial = 65536, smallest = 1;

  torch::Tensor factor_, found_inf_;  // float scalars
  torch::Tensor good_steps_;          // int32 scalar: since the last change of the scale
};

// An exponential moving average of the weights (Polyak and Juditsky 1992), used in their place outside of training.
// After step t it is (1 - decay) / (1 - decay^t) x the sum of decay^(t - i) W_i over steps i: without the initial
// weights, which would otherwise stay in it for long. decay 0: there is no average, and nothing here does anything.
class WeightAverage {
 public:
  // Keeps a reference to `parameters`.
  WeightAverage(ParameterBuffer& parameters, double decay);

  // Takes in the weights after step 1, 2, ...
  void update(std::int64_t step);

  // Starts again with the present weights.
  void reset();

  // While one lives, the parameters hold the average, and state() the weights in training.
  class Use {
   public:
    explicit Use(WeightAverage& average) : average_(average) { average_.exchange(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { average_.exchange(); }

   private:
    WeightAverage& average_;
  };

  // In a Use, what a checkpoint keeps beside the parameters: "trained.NAME", aliased as Optimizer::state.
  NamedTensors state() const;

 private:
  void exchange();

  ParameterBuffer& parameters_;
  double decay_;
  torch::Tensor other_;  // the average; in a Use the weights in training. Undefined: there is no average
};

// Elements [first, first + count) of a parameter buffer, which one process updates.
struct Shard {
  std::int64_t first = 0, count = 0;
};

// The shard of every rank, as equal as possible: Muon's matrices stay whole.
std::vector<Shard> shards_of(const ParameterBuffer& parameters, const TrainConfig& config, int size);

// Each process has the state of its shard and updates it; then all get the values of all. All functions are to be
// called by all processes.
class ShardedOptimizer : public Optimizer {
 public:
  // Keeps references.
  ShardedOptimizer(ParameterBuffer& parameters, const TrainConfig& config, const GradientScale& scale,
                   ProcessGroup& group);

  void step(const LearningRate& learning_rate) override;
  void reset() override { own_->reset(); }

  // The state of all shards, copied to the CPU, with the names and shapes of an optimiser without shards.
  NamedTensors state() const override;
  void load(const NamedTensors& state) override;
  std::string first_not_finite() const override;

  const std::vector<Shard>& shards() const { return shards_; }

 private:
  const Shard& own_shard() const { return shards_[static_cast<std::size_t>(group_.rank())]; }
  const ParameterBuffer::View* view_of(const std::string& name) const;  // whose state has that name

  ParameterBuffer& parameters_;
  ProcessGroup& group_;
  std::vector<Shard> shards_;
  ParameterBuffer shard_;  // own
  std::unique_ptr<Optimizer> own_;
};

}  // namespace metaformer
