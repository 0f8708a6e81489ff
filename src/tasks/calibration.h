#pragma once
// Temperature scaling: a classifier's confidence, fitted to how often it is right.

#include <torch/types.h>

#include <optional>
#include <string>

#include "tasks/task.h"

namespace metaformer {

// Guo et al. 2017, "On calibration of modern neural networks" (arXiv:1706.04599): the probabilities are softmax(z / T),
// with the temperature T that minimises the loss of validation texts. No text gets another class.
constexpr double lowest_temperature = 0.05, highest_temperature = 20;

// The minimum over T between the bounds, for logits [texts, classes] and their classes. 1 if there is nothing to fit:
// the texts have one class only, or all are classified correctly, so that the loss falls without end as T does, or a
// logit is not finite. The result does not depend on the number of threads.
double fit_temperature(const torch::Tensor& logits_lv, const torch::Tensor& labels_l);

// The same for the texts that a classifier has scored; nothing for other tasks.
std::optional<double> fit_temperature(const Task& task, const ScoreSums& sums);

// Mean loss of softmax(z / T).
double scaled_loss(const torch::Tensor& logits_lv, const torch::Tensor& labels_l, double temperature);

// Adds `temperature`, `scaled_loss` and `scaled_calibration_error` to the evaluation of a classifier with these sums;
// nothing without a temperature.
void add_scaled_scores(Evaluation& evaluation, const Task& task, const ScoreSums& sums,
                       const std::optional<double>& temperature);

// "temperature 1.3127, fitted to validation texts", or why it is at a bound or 1.
std::string describe_temperature(double temperature);

}  // namespace metaformer
