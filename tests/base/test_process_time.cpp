#include <chrono>
#include <thread>

#include "base/platform.h"
#include "support/catch.h"

namespace metaformer {

TEST_CASE("a program knows how long it has run", "[process]") {
  using std::chrono::milliseconds;
  const double before = seconds_since_program_start();
  note_program_start();  // too late
  std::this_thread::sleep_for(milliseconds(50));
  const double after = seconds_since_program_start();
  CHECK(before > 0);
  CHECK(before < 3600);
  CHECK(after >= before + 0.045);
}

}  // namespace metaformer
