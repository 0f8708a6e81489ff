// A token is generated without allocations, counted by replacements of the C library's allocation functions.

#include "support/any_mixer.h"

#ifndef __SANITIZE_ADDRESS__  // it replaces them itself

#include <atomic>
#include <cerrno>

#include "infer/generated_text.h"

namespace {
std::atomic<std::int64_t> allocations = 0;
}

// The C library's own functions, by names that it has for such replacements.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  ++allocations;
  *result = __libc_memalign(alignment, size);
  return *result != nullptr ? 0 : ENOMEM;
}
}

namespace metaformer {

TEST_CASE("a token is generated without an allocation", "[sampling]") {
  auto config = small_config(64);
  config.mixer = any_mixer();
  if (!has_decoder(config.mixer)) return does_not_apply("it has no decoder");
  const auto model = random_gpt(config);
  const auto precision = GENERATE(WeightPrecision::fp32, WeightPrecision::bf16);
  const auto of_forty = [&](bool cached) {
    TextGenerator generator(*model, {1, 2, 3}, {.cached = cached}, torch::kCPU, 2, {}, model->decoder(2, precision));
    for (int i = 0; i < 3; ++i) generator.next();
    const auto before = allocations.load();
    for (int i = 0; i < 40; ++i) generator.next();
    return allocations.load() - before;
  };
  CHECK(of_forty(true) == 0);
  CHECK(of_forty(false) > 40);  // the counter works
}

}  // namespace metaformer

#endif
