#include "base/process_time.h"

#include <ctime>

namespace metaformer {

static constinit timespec start = {};

void note_program_start() {
  if (start.tv_sec == 0 && start.tv_nsec == 0) clock_gettime(CLOCK_MONOTONIC, &start);
}

[[maybe_unused]] static const bool is_noted = (note_program_start(), true);

double seconds_since_program_start() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec - start.tv_sec) + static_cast<double>(now.tv_nsec - start.tv_nsec) * 1e-9;
}

}  // namespace metaformer
