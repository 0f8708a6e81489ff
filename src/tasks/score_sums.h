#pragma once
// What an evaluation adds up over batches.

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

namespace metaformer {

// Named sums, on the device and in float64 so that the order of batches hardly matters.
class ScoreSums {
 public:
  void add(const std::string& name, const torch::Tensor& value) {
    const auto wide = value.to(torch::kDouble);
    auto& sum = sums_[name];
    sum = sum.defined() ? sum + wide : wide;
  }

  // Keeps the rows of every batch, for what is no sum.
  void append(const std::string& name, const torch::Tensor& rows) { rows_[name].push_back(rows); }
  torch::Tensor joined(const std::string& name) const { return torch::cat(rows_.at(name)); }

  double item(const std::string& name) const { return sums_.at(name).item<double>(); }

  // Adds those of later batches.
  void add(const ScoreSums& later) {
    for (const auto& [name, sum] : later.sums_) add(name, sum);
    for (const auto& [name, rows] : later.rows_)
      for (const auto& of_batch : rows) append(name, of_batch);
  }

  const std::map<std::string, torch::Tensor>& sums() const { return sums_; }
  const std::map<std::string, std::vector<torch::Tensor>>& rows() const { return rows_; }

 private:
  std::map<std::string, torch::Tensor> sums_;
  std::map<std::string, std::vector<torch::Tensor>> rows_;
};

}  // namespace metaformer
