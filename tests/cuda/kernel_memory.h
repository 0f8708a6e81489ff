#pragma once
// Memory that both a test and the kernels under test can use, and what differs between emulated kernels and a GPU.

#include <cstddef>
#include <cstdint>

namespace metaformer {

// Filled with NaN. Emulated: it ends right before a page without access, and the page before it has none either. On a
// GPU: memory of the host that the device sees at the same address.
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

// Emulated: one of the orders of execution, as many as `turn` has values; a GPU has its own.
void choose_schedule(std::uint64_t turn);

// Emulated: the first adds ideally, the others as generations of tensor cores do (emulator.h); a GPU has its own.
std::size_t arithmetics();
void choose_arithmetic(std::size_t number);
bool cuts_terms();  // of sums, in place of rounding each

// Waits for the kernels; throws Error when one failed.
void finish_kernels();

}  // namespace metaformer
