#pragma once
// A line that tells how far an evaluation is.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/line_timer.h"

namespace metaformer {

// "evaluating the validation split: batch 3 of 40", for as long as it lives.
class EvaluationLine {
 public:
  EvaluationLine(std::string_view what, std::int64_t batches);
  EvaluationLine(const EvaluationLine&) = delete;
  EvaluationLine& operator=(const EvaluationLine&) = delete;
  ~EvaluationLine();
  void show(std::int64_t batch);  // 1, 2, ...

 private:
  std::string what_;
  std::int64_t batches_;
  LineTimer timer_;
};

}  // namespace metaformer
