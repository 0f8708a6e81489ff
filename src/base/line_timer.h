#pragma once
// Progress lines: redrawn on a terminal, plain lines at longer intervals elsewhere.

#include <chrono>
#include <string>

namespace metaformer {

// Decides when the next line is due: often on a terminal, where it is redrawn, and rarely elsewhere.
class LineTimer {
 public:
  using Clock = std::chrono::steady_clock;
  bool is_due() const;
  void restart() { start_ = Clock::now(); }
  bool has_run(Clock::duration time) const { return Clock::now() - start_ >= time; }

 private:
  Clock::time_point start_ = Clock::now();
};

// Redraws the progress line on a terminal; elsewhere writes an ordinary line.
void show_progress(const std::string& line);

}  // namespace metaformer
