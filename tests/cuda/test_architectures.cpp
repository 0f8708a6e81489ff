#include "cuda/devices.h"
#include "support/catch.h"

namespace metaformer {

TEST_CASE("machine code runs within its major, PTX on what is newer", "[kernels]") {
  using cuda::has_code_for;
  constexpr auto shipped = "80-real;90-real;100-real;120-real;90-virtual";
  CHECK_FALSE(has_code_for(shipped, 7, 5));
  CHECK(has_code_for(shipped, 8, 0));
  CHECK(has_code_for(shipped, 8, 9));
  CHECK(has_code_for(shipped, 9, 0));
  CHECK(has_code_for(shipped, 10, 3));
  CHECK(has_code_for(shipped, 12, 0));
  CHECK(has_code_for(shipped, 11, 0));  // by PTX
  CHECK_FALSE(has_code_for("86-real", 8, 0));
  CHECK_FALSE(has_code_for("80-real", 9, 0));
  CHECK(has_code_for("80", 9, 0));  // both
  CHECK_FALSE(has_code_for("80-virtual", 7, 5));
  CHECK_FALSE(has_code_for("", 9, 0));
}

}  // namespace metaformer
