#pragma once
// Muon.

#include <torch/types.h>

#include "train/optim/adam.h"

namespace metaformer {

// The orthogonal factor of a matrix, nearly.

// Of each matrix U S V' of x_mrc about U V': the singular values end between 0.7 and 1.2 (those near 0 somewhere
// below). `iterations` of the quintic polynomial of Jordan et al. 2024, "Muon", after a division by the Frobenius norm;
// 0 stays 0. The products are in `type`, and so is the result. Cheaper where r <= c.
torch::Tensor orthogonalise(const torch::Tensor& x_mrc, std::int64_t iterations, torch::ScalarType type);

// Muon (Jordan et al. 2024): the momentum of a hidden matrix, orthogonalised. Everything else by AdamW.

// With mu the momentum, G the gradient and O the orthogonal factor of an r x c matrix W:
//   M <- mu M + (1 - mu) G,   W <- (1 - rate decay) W - rate 0.2 sqrt(max(r, c)) O(mu M + (1 - mu) G)
// The factor gives updates the size of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training"), so that one
// learning rate serves both. Which matrices these are is said where they are registered (ParameterSpec).
class Muon : public Optimizer {
 public:
  // Keeps a reference to `parameters`. The products that orthogonalise are in `type`.
  Muon(ParameterBuffer& parameters, const MuonConfig& config, torch::ScalarType type, GradientScale scale = {});

  void step(double learning_rate) override;
  void step(const torch::Tensor& learning_rate) override;
  void reset() override;

  // "momentum.NAME" of the matrices; of all else as Adam.
  NamedTensors state() const override;

 private:
  // Matrices of one shape and one factor of the learning rate, which are orthogonalised together. Those with more rows
  // than columns lie transposed.
  struct Group {
    double rate = 1;
    std::vector<std::string> names;
    std::vector<std::int64_t> counts;              // of matrices of each name
    std::vector<torch::Tensor> values, gradients;  // of each name, [m, r, c]
    torch::Tensor momentum_mrc, direction_mrc;     // of all; the second is room for what is orthogonalised
  };

  void add(const ParameterBuffer::View& view);
  void take_gradients(Group& group);
  template <class Rate>
  void update_matrices(Group& group, const Rate& rate);
  template <class Rate>
  void update(const Rate& learning_rate);

  MuonConfig config_;
  torch::ScalarType type_;
  GradientScale scale_;
  std::vector<Group> groups_;
  Adam rest_;
};

}  // namespace metaformer
