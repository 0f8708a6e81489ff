// Shows that CHECK is Catch2's even if torch is included: this executable must fail if all its cases run.
#include "support/torch_catch.h"

TEST_CASE("a CHECK that does not hold", "[fails]") { CHECK(torch::ones({1}).item<int>() == 2); }

TEST_CASE("a case without assertions", "[empty]") {}

TEST_CASE("a case that cannot run here", "[skips]") { skip("to be seen"); }

TEST_CASE("a CHECK that holds", "[passes]") { CHECK(torch::ones({1}).item<int>() == 1); }
