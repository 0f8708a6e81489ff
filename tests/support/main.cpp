#include "support/own_cache.h"

#define CATCH_CONFIG_RUNNER  // for version 2
#include "support/catch.h"

namespace {

// No test reads or writes the user's cache.
const OwnCache cache_of_all_tests;

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

std::uint64_t assertions = 0;
bool found_no_case = false;

class AssertionCounter : public Listener {
 public:
  using Listener::Listener;
  void testRunEnded(const Catch::TestRunStats& run) override {
    assertions = run.totals.assertions.total();
    found_no_case = run.totals.testCases.total() == 0;
  }
};
CATCH_REGISTER_LISTENER(AssertionCounter)

}  // namespace

int main(int argc, char** argv) {
  constexpr int skipped = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt
  const int result = Catch::Session().run(argc, argv);
  if (result == 0 && found_no_case) return EXIT_FAILURE;  // a name that CTest cannot pass on
  if (result == 0 && assertions > 0 && assertions == skips) return skipped;
  return result == skipped ? EXIT_FAILURE : result;  // 77 may be a number of failures
}
