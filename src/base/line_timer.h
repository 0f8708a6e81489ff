#pragma once
// Lines that tell of progress: redrawn on a terminal, now and then a plain line elsewhere.

#include <chrono>
#include <string>

namespace metaformer {

// When the next line is due: often on a terminal, where it is redrawn, and rarely where it stays.
class LineTimer {
 public:
  using Clock = std::chrono::steady_clock;
  bool is_due() const;
  void restart() { start_ = Clock::now(); }
  bool has_run(Clock::duration time) const { return Clock::now() - start_ >= time; }

 private:
  Clock::time_point start_ = Clock::now();
};

// Redraws the line of progress on a terminal; elsewhere writes a line that stays.
void show_progress(const std::string& line);

}  // namespace metaformer
