// A safetensors file gives an Error or tensors; after writing, as many are read back.

#include <cstdlib>

#include "base/error.h"
#include "run/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metaformer;
  try {
    const auto tensors = from_safetensors({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto again = from_safetensors(to_safetensors(tensors), "fuzz");
    if (again.size() != tensors.size()) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
