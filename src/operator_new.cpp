// mimalloc's operator new ends the program if no memory is left. These throw, as the standard requires, so that the
// error is reported. Their memory comes from mimalloc, and mimalloc's operator delete frees it.

#include <cstdlib>
#include <new>

template <class Allocate>
static void* allocated(Allocate allocate) {
  for (;;) {
    if (void* block = allocate()) return block;
    const auto handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* operator new(std::size_t size) {
  return allocated([&] { return std::malloc(size == 0 ? 1 : size); });
}

void* operator new[](std::size_t size) { return operator new(size); }

void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocated([&]() -> void* {
    void* block = nullptr;
    return posix_memalign(&block, static_cast<std::size_t>(alignment), size) == 0 ? block : nullptr;
  });
}

void* operator new[](std::size_t size, std::align_val_t alignment) { return operator new(size, alignment); }
