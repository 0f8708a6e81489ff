#pragma once
// One line that tells how training goes: redrawn on a terminal, now and then a plain line elsewhere.

#include <chrono>
#include <cstdint>
#include <string>

namespace metaformer {

class ProgressLine {
 public:
  ProgressLine(std::int64_t first_step, std::int64_t last_step, double tokens_per_step);

  // Cheap to call every step; formats only when something will be shown.
  bool is_due() const;
  void show(std::int64_t step, double loss, double learning_rate);

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t first_step_, last_step_;
  double tokens_per_step_;
  Clock::time_point start_, shown_;
};

}  // namespace metaformer
