#include "support/before_tests.h"
#include "support/own_cache.h"

// No test reads or writes what the user's programs have kept.
static const OwnCache cache_of_all_tests;

namespace metaformer {

__attribute__((weak)) void before_tests() {}

}  // namespace metaformer

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  metaformer::before_tests();
  return Catch::Session().run(argc, argv);
}
