#include "support/failure.h"
#include "support/workplace.h"

namespace metaformer {

TEST_CASE("what cannot fit into memory is refused before anything is made", "[memory]") {
  const Workplace place;
  const auto [code, message] = failure([&] {
    place.train("run", {"model.width=65536", "model.heads=8", "model.layers=1024"});
  });
  CHECK(code == ExitCode::out_of_memory);
  CHECK_THAT(message, ContainsSubstring("model.context or model.width, or train with --force"));
  CHECK_FALSE(std::filesystem::exists(place / "run"));
}

}  // namespace metaformer
