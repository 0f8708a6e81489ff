#include "train/progress_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "core/text.h"

namespace metaformer {

ProgressLine::ProgressLine(std::int64_t first_step, std::int64_t last_step, double tokens_per_step)
    : first_step_(first_step),
      last_step_(last_step),
      tokens_per_step_(tokens_per_step),
      start_(Clock::now()),
      shown_(start_) {}

bool ProgressLine::is_due() const {
  using namespace std::chrono_literals;
  return Clock::now() - shown_ >= (log::stderr_is_terminal() ? Clock::duration(100ms) : Clock::duration(5s));
}

void ProgressLine::show(std::int64_t step, double loss, double learning_rate) {
  shown_ = Clock::now();
  const double seconds = std::chrono::duration<double>(shown_ - start_).count();
  const double per_step = seconds / static_cast<double>(std::max<std::int64_t>(1, step - first_step_));
  const auto line = fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  {} tokens/s  ETA {}", step, last_step_, loss,
                                learning_rate, human_count(tokens_per_step_ / per_step),
                                human_duration(per_step * static_cast<double>(last_step_ - step)));
  if (log::stderr_is_terminal()) {
    log::progress(line);
  } else {
    log::info("{}", line);
  }
}

}  // namespace metaformer
