#pragma once

namespace metaformer {

// Called once by main. An executable that does not define it has nothing to prepare.
void before_tests();

}  // namespace metaformer
