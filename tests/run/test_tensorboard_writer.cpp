#include "run/tensorboard_writer.h"
#include "support/catch.h"

namespace metaformer {

TEST_CASE("CRC-32C has the values of RFC 3720", "[tensorboard]") {
  CHECK(crc32c("123456789") == 0xe3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);
}

}  // namespace metaformer
