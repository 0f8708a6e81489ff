#include <chrono>
#include <thread>

#include "base/process_time.h"
#include "support/catch.h"

namespace metaformer {

TEST_CASE("a process knows how long it has run", "[process]") {
  using std::chrono::milliseconds;
  const double before = seconds_since_process_start();
  std::this_thread::sleep_for(milliseconds(50));
  const double after = seconds_since_process_start();
  CHECK(before > 0);
  CHECK(before < 3600);
  CHECK(after >= before + 0.045);
}

}  // namespace metaformer
