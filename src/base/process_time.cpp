#include "base/process_time.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <limits>
#include <string>

namespace metaformer {

// proc(5): field 22 is the start in ticks since the machine started. Field 2, a name in parentheses, may contain
// spaces.
double seconds_since_process_start() {
  std::ifstream stat("/proc/self/stat");
  stat.ignore(std::numeric_limits<std::streamsize>::max(), ')');
  std::string skipped;
  for (int field = 3; field < 22; ++field) stat >> skipped;
  double start_ticks = 0;
  timespec now{};
  if (!(stat >> start_ticks) || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  return std::max(0.0, seconds - start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

}  // namespace metaformer
