#pragma once
// Optimisers over a flat parameter buffer, the loss scale, and the average of the weights.

#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "config/train_config.h"
#include "distributed/process_group.h"
#include "model/parameters.h"
#include "ops/named_tensors.h"

namespace metaformer {

// A tensor is a scalar on the parameters' device and is read there: the host does not wait, and a CUDA graph of the
// update can be replayed at another rate.
using LearningRate = std::variant<double, torch::Tensor>;

// What an optimiser makes of the gradients: float scalars on the parameters' device, which it reads in every step. The
// first two are empty if the loss is not scaled.
struct GradientScale {
  std::optional<torch::Tensor> divisor;    // of the gradients
  std::optional<torch::Tensor> found_inf;  // 1: not all gradients are finite, and the step must change nothing; else 0
  std::optional<torch::Tensor> factor = {};  // of the gradients, for optimisers that clip (clips_in_update)
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update from the gradients in the parameter buffer.
  virtual void step(const LearningRate& learning_rate) = 0;

  // Restores the state before the first step.
  virtual void reset() = 0;

  // The tensors that a checkpoint keeps, by names such as "first_moment.NAME of a parameter". They alias the state, so
  // copying into them loads it. Only an optimiser that shares its state with other processes must then load() it, from
  // tensors that include those of state().
  virtual NamedTensors state() const = 0;
  virtual void load(const NamedTensors&) {}

  // The name in state() of a tensor that holds a NaN or an infinity; "" when none does.
  virtual std::string first_not_finite() const;
};

// The optimiser that a config asks for. Keeps a reference to `parameters`. `scale`: for gradients of a scaled loss.
// Weight decay applies only to matrices and, with a strength of its own, to embedding tables.
//
// AdamW (Loshchilov and Hutter 2019), and Adam (Kingma and Ba 2015) with its weight decay in the gradient; their state:
// "first_moment.NAME" and "second_moment.NAME" by parameter name, and "steps".
// SGD with momentum (Sutskever et al. 2013), as torch.optim.SGD; its state: "momentum.NAME", nothing without momentum.
// Adagrad (Duchi, Hazan and Singer 2011), as torch.optim.Adagrad without a decaying rate; "squared_gradients.NAME".
// Muon (Jordan et al. 2024) for hidden matrices, "momentum.NAME"; AdamW for everything else.
std::unique_ptr<Optimizer> make_optimizer(ParameterBuffer& parameters, const TrainConfig& config,
                                          const GradientScale& scale = {});

// Whether this optimiser multiplies the gradients by the scale's factor, so that clipping need not write them: AdamW
// and Adam on a GPU, where a kernel updates all weights (ops/fused_update.h).
bool clips_in_update(const ParameterBuffer& parameters, const TrainConfig& config);

// An approximation of U V' for each matrix U S V' of x_mrc, for Muon: its singular values lie between 0.7 and 1.2
// (lower for those near 0). Computed by `iterations` of the quintic polynomial of Jordan et al. 2024, "Muon", after a
// division by the Frobenius norm; 0 stays 0. The products and the result are in `type`. Cheaper if r <= c.
torch::Tensor orthogonalise(const torch::Tensor& x_mrc, std::int64_t iterations, torch::ScalarType type);

// Dynamic loss scaling (Micikevicius et al. 2018): keeps small gradients within fp16's range. The loss is multiplied by
// the scale, and gradients are divided by it. A step whose gradients are not finite changes nothing but the scale. All
// values stay on the device, so that a CUDA graph can contain the step. As torch.amp.GradScaler, but the scale does not
// fall below 1, because fp16 gains nothing from smaller scales.
class LossScale {
 public:
  explicit LossScale(torch::Device device);

  const torch::Tensor& factor() const { return factor_; }
  GradientScale of_gradients() const { return {.divisor = factor_, .found_inf = found_inf_}; }

  // Takes the norm of the scaled gradients, and returns that of the unscaled gradients.
  torch::Tensor unscaled_norm(const torch::Tensor& scaled_norm);

  // Boolean scalars for the step of the last unscaled_norm(): whether it is skipped; whether even the smallest scale
  // was too large.
  torch::Tensor is_skipped() const { return found_inf_.to(torch::kBool, /*non_blocking=*/false, /*copy=*/true); }
  torch::Tensor is_exhausted() const { return is_skipped().logical_and_(factor_ <= smallest); }

  // To be called after the update: doubles the scale after 2,000 steps without an overflow, and halves it after an
  // overflow.
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
// weights, which would otherwise keep their influence for long. decay 0: there is no average, and all functions do
// nothing.
class WeightAverage {
 public:
  // Keeps a reference to `parameters`. `exchanged` is called after their values have been replaced.
  WeightAverage(ParameterBuffer& parameters, double decay, std::function<void()> exchanged = {});

  // Adds the weights after step 1, 2, ... to the average.
  void update(std::int64_t step);

  // Starts again with the present weights.
  void reset();

  // While a Use exists, the parameters hold the average, and state() the weights in training.
  class Use {
   public:
    explicit Use(WeightAverage& average) : average_(average) { average_.exchange(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { average_.exchange(); }

   private:
    WeightAverage& average_;
  };

  // During a Use, the tensors that a checkpoint keeps besides the parameters: "trained.NAME", aliased as in
  // Optimizer::state.
  NamedTensors state() const;

 private:
  void exchange();

  ParameterBuffer& parameters_;
  double decay_;
  std::function<void()> exchanged_;
  torch::Tensor other_;  // the average; during a Use the weights in training; undefined without an average
};

// Elements [first, first + count) of a parameter buffer, which one process updates.
struct Shard {
  std::int64_t first = 0, count = 0;
};

// The shard of every rank, of nearly equal sizes. With Muon no parameter is cut, because its matrices must stay whole.
std::vector<Shard> shards_of(const ParameterBuffer& parameters, const TrainConfig& config, int size);

// Each process keeps the optimiser state of its shard and updates the shard; then all processes receive all values. All
// processes must call each function.
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
  const ParameterBuffer::View* view_of(const std::string& name) const;  // of the state of that name

  ParameterBuffer& parameters_;
  ProcessGroup& group_;
  std::vector<Shard> shards_;
  ParameterBuffer shard_;  // of this process
  std::unique_ptr<Optimizer> own_;
};

}  // namespace metaformer
