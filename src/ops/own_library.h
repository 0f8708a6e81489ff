#pragma once
// Libraries of this program that it loads only when they are needed.

#include <string>

namespace metaformer {

// Beside the program where it was built, in its library folder where it was installed. nullptr: it is not there, or
// cannot be loaded (dlerror() says why).
void* open_own_library(const std::string& name);

}  // namespace metaformer
