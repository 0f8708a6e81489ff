#include "tasks/evaluation_line.h"

#include <fmt/format.h>

#include "base/log.h"

namespace metaformer {

EvaluationLine::EvaluationLine(std::string_view what, std::int64_t batches) : what_(what), batches_(batches) {
  log::progress(fmt::format("evaluating {}", what_));
}

EvaluationLine::~EvaluationLine() { log::clear_progress(); }

void EvaluationLine::show(std::int64_t batch) {
  if (!timer_.is_due()) return;
  timer_.restart();
  show_progress(fmt::format("evaluating {}: batch {} of {}", what_, batch, batches_));
}

}  // namespace metaformer
