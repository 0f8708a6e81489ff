#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "cuda/emulator.h"
#include "cuda/kernel_memory.h"

namespace metaformer {

KernelMemory::KernelMemory(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  mapped_ = (bytes + page - 1) / page * page + 2 * page;
  void* mapped = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<unsigned char*>(mapped);
  ::mprotect(base_, page, PROT_NONE);
  ::mprotect(base_ + mapped_ - page, page, PROT_NONE);
  start_ = base_ + mapped_ - page - bytes;
  std::memset(start_, 0xff, bytes);
}

KernelMemory::~KernelMemory() { ::munmap(base_, mapped_); }

// Goes through every order of threads with every kind of copies.
void choose_schedule(std::uint64_t turn) {
  emulator::set_schedule({.order = static_cast<emulator::Order>(turn % 3),
                          .copies = static_cast<emulator::Copies>(turn / 3 % 3),
                          .seed = turn,
                          .blocks = static_cast<emulator::Order>((turn + 2) % 3),
                          .beginnings = static_cast<emulator::Order>((turn + 1) % 3)});
}

std::size_t arithmetics() { return 3; }
bool cuts_terms() { return emulator::arithmetic() != emulator::Arithmetic::ideal; }
void choose_arithmetic(std::size_t number) { emulator::set_arithmetic(static_cast<emulator::Arithmetic>(number)); }

void finish_kernels() {}

}  // namespace metaformer
