// What is compared with what a model writes.

#include "infer/target_scores.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("the first sentence ends with a mark before white space", "[pairs]") {
  const auto [text, first] = GENERATE(table<std::string, std::string>({
      {"A library. It reads files.", "A library."},
      {"Is it 3.5? Yes.", "Is it 3.5?"},
      {"Hello!\nNext", "Hello!"},
      {"no mark at all", "no mark at all"},
      {"version 1.2.3", "version 1.2.3"},
      {"ends here.", "ends here."},
      {"", ""},
  }));
  CHECK(first_sentence(text) == first);
}

}  // namespace metaformer
