#pragma once
// AdamW, Adam, SGD, Adagrad and Muon over a flat parameter buffer.

#include <memory>

#include "train/optim/optimizer.h"

namespace metaformer {

// The optimiser that a config asks for. Keeps a reference to `parameters`. `scale`: of gradients of a scaled loss.
//
// AdamW (Loshchilov and Hutter 2019) and Adam (Kingma and Ba 2015), whose weight decay is a part of the gradient; their
// state: "first_moment.NAME" and "second_moment.NAME" by parameter name, and "steps".
// SGD with momentum (Sutskever et al. 2013), as torch.optim.SGD; its state: "momentum.NAME", nothing without momentum.
// Adagrad (Duchi, Hazan and Singer 2011), as torch.optim.Adagrad without a decaying rate; "squared_gradients.NAME".
// Muon (Jordan et al. 2024) for hidden matrices, "momentum.NAME"; AdamW for everything else.
std::unique_ptr<Optimizer> make_optimizer(ParameterBuffer& parameters, const TrainConfig& config,
                                          const GradientScale& scale = {});

// Nearly the orthogonal factor of matrices, for Muon.
// Of each matrix U S V' of x_mrc about U V': the singular values end between 0.7 and 1.2 (those near 0 somewhere
// below). `iterations` of the quintic polynomial of Jordan et al. 2024, "Muon", after a division by the Frobenius norm;
// 0 stays 0. The products are in `type`, and so is the result. Cheaper where r <= c.
torch::Tensor orthogonalise(const torch::Tensor& x_mrc, std::int64_t iterations, torch::ScalarType type);

}  // namespace metaformer
