// Compiled into tests that make models.
#include "attention/mixers.h"
#include "support/before_tests.h"

namespace metaformer {

void before_tests() { register_mixers(); }

}  // namespace metaformer
