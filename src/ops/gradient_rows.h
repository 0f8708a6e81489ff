#pragma once
// Which rows of a table have a gradient.

#include <cstdint>
#include <vector>

namespace metaformer {

// Of a table of which a batch reads few rows. Whoever writes the gradient of a row lists it here, so that clearing,
// norms and updates can pass over all other rows, whose gradients are zero. For one thread at a time.
class GradientRows {
 public:
  explicit GradientRows(std::int64_t rows) : is_listed_(static_cast<std::size_t>(rows)) {}

  void add(std::int64_t row) {
    auto& is_listed = is_listed_[static_cast<std::size_t>(row)];
    if (is_listed == 0) listed_.push_back(row);
    is_listed = 1;
  }

  // The gradient is written as a whole.
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

}  // namespace metaformer
