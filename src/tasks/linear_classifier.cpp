#include "tasks/linear_classifier.h"

#include <linear.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/signals.h"

namespace metaformer {

namespace {

// The texts in the format of liblinear: a row of (column, value) each, with the bias as its last column, ended by
// column -1. Columns are the features of the texts, numbered 1, 2, ... in the order of their first occurrence.
class Problem {
 public:
  Problem(const std::vector<LabelledFeatures>& texts, std::int64_t buckets)
      : texts_(texts), buckets_(static_cast<std::size_t>(buckets)) {
    std::vector<std::int32_t> column_of(buckets_);  // 0: no text has it
    std::size_t size = 0;
    for (const auto& text : texts) {
      size += text.features.size() + 2;
      for (const auto feature : text.features) {
        if (column_of[feature] != 0) continue;
        bucket_of_.push_back(feature);
        column_of[feature] = static_cast<std::int32_t>(bucket_of_.size());
      }
    }
    bias_column_ = static_cast<int>(bucket_of_.size()) + 1;
    nodes_.reserve(size);
    for (const auto& text : texts) {
      rows_.push_back(nodes_.data() + nodes_.size());
      for (const auto feature : text.features) nodes_.push_back({column_of[feature], 1});
      nodes_.push_back({bias_column_, 1});
      nodes_.push_back({-1, 0});
    }
  }

  // Sets the weights of the classes in `uses`: the log odds of the class `label` against the rest, times a factor.
  void fit_class(std::int64_t label, const LinearConfig& config,
                 const std::vector<std::pair<std::int64_t, double>>& uses, LinearWeights& result) {
    std::vector<double> targets;
    for (const auto& text : texts_) targets.push_back(text.label == label ? 1 : -1);
    const auto members = static_cast<double>(std::count(targets.begin(), targets.end(), 1.0));
    const auto others = static_cast<double>(targets.size()) - members;
    std::vector<double> odds(buckets_);
    double bias = std::log((members + 1) / (others + 1));
    if (members > 0 && others > 0) {
      const auto values =
          config.naive_bayes ? log_count_ratios(texts_, label, buckets_) : std::vector<double>(buckets_, 1.0);
      for (auto& node : nodes_)
        if (node.index > 0 && node.index < bias_column_)
          node.value = values[bucket_of_[static_cast<std::size_t>(node.index - 1)]];
      const auto solution = solve(std::move(targets), config.cost);
      for (std::size_t column = 0; column < bucket_of_.size(); ++column)
        odds[bucket_of_[column]] = solution[column] * values[bucket_of_[column]];
      bias = solution.back();
    }
    for (const auto& [of, factor] : uses) {
      const auto column = static_cast<std::size_t>(of);
      for (std::size_t bucket = 0; bucket < buckets_; ++bucket)
        result.weights[bucket * result.bias.size() + column] = static_cast<float>(factor * odds[bucket]);
      result.bias[column] = static_cast<float>(factor * bias);
    }
  }

 private:
  // The weight of each column, the bias last; `targets` are 1 and -1, and both must occur.
  std::vector<double> solve(std::vector<double> targets, double cost) {
    const problem described{
        .l = static_cast<int>(rows_.size()), .n = bias_column_, .y = targets.data(), .x = rows_.data(), .bias = 1};
    parameter settings{};
    // Several times as fast as the primal, and independent of the installed BLAS.
    settings.solver_type = L2R_LR_DUAL;
    settings.eps = 0.01;
    settings.C = cost;
    set_print_string_function([](const char*) {});
    std::srand(1);  // liblinear orders texts by rand(), which nothing else here uses
    const auto destroy = [](model* trained) { free_and_destroy_model(&trained); };
    const std::unique_ptr<model, decltype(destroy)> trained(::train(&described, &settings), destroy);
    // The weights are for the label that comes first.
    const double sign = trained->label[0];
    std::vector<double> weights(trained->w, trained->w + bias_column_);
    for (auto& weight : weights) weight *= sign;
    return weights;
  }

  const std::vector<LabelledFeatures>& texts_;
  std::size_t buckets_;
  std::vector<std::uint32_t> bucket_of_;  // by column - 1
  int bias_column_ = 0;
  std::vector<feature_node> nodes_;
  std::vector<feature_node*> rows_;
};

}  // namespace

std::vector<double> LinearWeights::logits(const std::vector<std::uint32_t>& features) const {
  std::vector<double> sums(bias.begin(), bias.end());
  for (const auto feature : features)
    for (std::size_t label = 0; label < sums.size(); ++label) sums[label] += weights[feature * sums.size() + label];
  return sums;
}

LinearWeights fit_linear_classifier(const std::vector<LabelledFeatures>& texts, std::int64_t classes,
                                    const LinearConfig& config) {
  if (texts.size() >= static_cast<std::size_t>(std::numeric_limits<int>::max()))  // liblinear numbers rows by int
    throw Error(ExitCode::data, "the linear classifier can be trained on 2^31 - 2 texts at most");
  LinearWeights result{.classes = classes,
                       .weights = std::vector<float>(static_cast<std::size_t>(config.buckets * classes)),
                       .bias = std::vector<float>(static_cast<std::size_t>(classes))};
  Problem problem(texts, config.buckets);
  if (classes == 2) {
    problem.fit_class(1, config, {{0, -0.5}, {1, 0.5}}, result);
    return result;
  }
  for (std::int64_t label = 0; label < classes; ++label) {
    throw_if_stopped();
    problem.fit_class(label, config, {{label, 1}}, result);
  }
  return result;
}

std::vector<LabelledFeatures> training_features(const BatchStream& stream, const RowFeatures& row_features) {
  std::vector<LabelledFeatures> texts;
  const auto batches = stream.evaluation_batches(Split::train);
  for (std::int64_t i = 0; i < batches; ++i) {
    throw_if_stopped();
    const auto batch = stream.evaluation_batch(Split::train, i, torch::kCPU);
    auto rows = row_features(batch);
    const auto* labels = batch.labels_l.data_ptr<std::int64_t>();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      rows[row].shrink_to_fit();
      texts.push_back({.features = std::move(rows[row]), .label = labels[row]});
    }
  }
  return texts;
}

std::vector<std::vector<std::uint32_t>> row_features(const Batch& batch, const LinearConfig& config) {
  const auto ids_bc = batch.ids_bc.to(torch::kCPU).contiguous();
  const auto segments_bc =
      batch.segments_bc.defined() ? batch.segments_bc.to(torch::kCPU).contiguous() : torch::zeros_like(ids_bc);
  const auto length = ids_bc.size(1);
  std::vector<std::vector<std::uint32_t>> features;
  for (std::int64_t row = 0; row < ids_bc.size(0); ++row) {
    const auto* ids = ids_bc.data_ptr<std::int64_t>() + row * length;
    const auto* segments = segments_bc.data_ptr<std::int64_t>() + row * length;
    std::vector<std::int32_t> real;
    for (std::int64_t i = 0; i < length; ++i)
      if (segments[i] >= 0) real.push_back(static_cast<std::int32_t>(ids[i]));
    features.push_back(ngram_features(real, config));
  }
  return features;
}

LinearModel::LinearModel(const LinearConfig& config, const LinearWeights& weights)
    : config_(config),
      weight_fv_(torch::tensor(weights.weights, torch::kFloat).view({-1, weights.classes})),
      bias_v_(torch::tensor(weights.bias, torch::kFloat)) {}

LinearModel::LinearModel(const LinearConfig& config, std::int64_t classes)
    : config_(config), weight_fv_(torch::empty({config.buckets, classes})), bias_v_(torch::empty(classes)) {}

void LinearModel::to(torch::Device device) {
  weight_fv_ = weight_fv_.to(device);
  bias_v_ = bias_v_.to(device);
}

torch::Tensor LinearModel::logits(const Batch& batch) const {
  std::vector<torch::Tensor> sums;
  // Row by row, because embedding_bag starts all threads for the few additions of a row, and these then wait for each
  // other.
  for (const auto& row : row_features(batch, config_)) {
    const std::vector<std::int64_t> features(row.begin(), row.end());
    const auto features_f = torch::tensor(at::ArrayRef<std::int64_t>(features), torch::kLong);
    sums.push_back(weight_fv_.index_select(0, features_f.to(weight_fv_.device())).sum(0));
  }
  return torch::stack(sums) + bias_v_;
}

}  // namespace metaformer
