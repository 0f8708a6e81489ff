#include "support/own_cache.h"

// No test reads or writes what the user's programs have kept.
static const OwnCache cache_of_all_tests;

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
