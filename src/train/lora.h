#pragma once
// train.lora: low-rank adaptation of initial weights (Hu et al. 2021, arXiv:2106.09685).

#include <string>
#include <utility>
#include <vector>

#include "config/train_config.h"
#include "model/parameters.h"
#include "ops/named_tensors.h"
#include "train/initial_weights.h"

namespace metaformer {

// The parameters of a training with adapters: those of the model, of which only the ones that train.lora.full names are
// trained, and the factors of each target: "X.lora_A" [rank, inputs] and "X.lora_B" [outputs, rank] for "X.weight". A
// is drawn from uniform(-1 / sqrt(inputs), 1 / sqrt(inputs)), and B is 0, as in the package `peft`. Errors (exit code
// 2): a name of train.lora that names nothing, or a target that is also trained in full.
std::vector<SpecifiedParameter> with_adapters(std::vector<SpecifiedParameter> of_model, const TrainConfig& config);

// Throws Error (exit code 2) if a parameter that training does not change has random values, because the initial
// weights lack it. The others as with_adapters.
void require_adaptable(const SequenceModel& model, const TrainConfig& config, const WeightTransfer& transfer);

// "12.3k of 4.4M parameters are trained"; "" if all are.
std::string describe_trained(const ParameterBuffer& parameters);

// The adapters of a training. The model computes with W = base + alpha / rank B A, so that forward and backward passes,
// evaluation and checkpoints are those of a model without adapters. After backward the gradients of A and B follow from
// that of W. On the CPU one thread computes each product, so that results do not depend on the number of threads.
class Lora {
 public:
  // `parameters`: of with_adapters, with their rates. Keeps a reference. The base are the targets' present values.
  Lora(ParameterBuffer& parameters, const LoraConfig& config);

  // Makes the targets' present values the base. To be called while all B are 0.
  void take_base();

  // To be called after A and B have changed: W <- base + alpha / rank B A.
  void merge();

  // The gradients of A and B from those of the targets, which become 0.
  void project_gradients();

  // The tensors that a checkpoint keeps: "base.NAME" of the targets and "adapter.NAME" of the factors. They alias the
  // state, as in Optimizer::state.
  NamedTensors state() const;

 private:
  struct Factor {
    std::string name;
    bool is_trained = true;
    torch::Tensor value, gradient;
  };
  struct Adapter {
    std::string name;  // of W
    torch::Tensor weight_oi, gradient_oi, base_oi;
    Factor a, b;  // [r, i], [o, r]
  };

  // Calls use(adapter, part) for each part 0 ... parts - 1 of each adapter.
  template <class Use>
  void for_each_part(std::int64_t parts, const Use& use);

  ParameterBuffer& parameters_;
  double scale_;
  std::vector<Adapter> adapters_;
};

// The factors in the state of a checkpoint, without the prefix of their names: "X.lora_A", "X.lora_B".
NamedTensors adapters_in(const NamedTensors& state);

}  // namespace metaformer
