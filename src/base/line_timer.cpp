#include "base/line_timer.h"

#include "base/log.h"

namespace metaformer {

using namespace std::chrono_literals;

bool LineTimer::is_due() const {
  return has_run(log::stderr_is_terminal() ? Clock::duration(100ms) : Clock::duration(5s));
}

void show_progress(const std::string& line) { log::stderr_is_terminal() ? log::progress(line) : log::write_info(line); }

}  // namespace metaformer
