#pragma once
// Memory that both a test and the kernels under test can use, and differences between emulated kernels and a GPU.

#include <cstddef>
#include <cstdint>

namespace metaformer {

// Memory filled with NaN. Emulated: it ends right before a page without access, and another one lies before it. On a
// GPU: host memory that the device sees at the same address.
class KernelMemory {
 public:
  explicit KernelMemory(std::size_t bytes);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;
  unsigned char* data() const { return start_; }
  float* floats() const { return reinterpret_cast<float*>(start_); }

 private:
  unsigned char *base_ = nullptr, *start_ = nullptr;
  std::size_t mapped_ = 0;
};

// Emulated: chooses an order of execution by `turn`. Has no effect on a GPU.
void choose_schedule(std::uint64_t turn);

// Emulated: number 0 adds ideally, the others like generations of tensor cores (emulator.h). A GPU has only its own.
std::size_t arithmetics();
void choose_arithmetic(std::size_t number);
bool cuts_terms();  // whether sums cut their terms in place of rounding

// Waits for the kernels; throws Error if one failed.
void finish_kernels();

}  // namespace metaformer
