#pragma once
// Runs kernels on the CPU, for tests: the threads of a block are fibers on one thread of the host. The order of warps
// and the time at which an asynchronous copy lands are not defined on a GPU; here a test can choose them. Undefined
// behaviour on a GPU (a barrier that not all threads reach, a collective of half a warp) is an error here. Shared
// memory starts as NaN and ends at a page without access. Three blocks run at a time.

#include <cstdint>
#include <functional>
#include <set>
#include <source_location>
#include <string_view>

namespace metaformer::emulator {

enum class Order { first_come, last_come, random };  // which ready one runs next
enum class Copies { eager, lazy, random };  // asynchronous copies land at the start, at the wait, or either at random

struct Schedule {
  Order order = Order::first_come;  // among the threads of a block
  Copies copies = Copies::eager;
  std::uint64_t seed = 0;
  Order blocks = Order::random;      // among the blocks that have begun
  Order beginnings = Order::random;  // the order in which blocks begin
};

void set_schedule(const Schedule& schedule);

// Addition in tensor cores, and errors of approximate functions. `ideal`: every sum is rounded, functions are exact.
// `ampere` and `hopper`: addends are cut to a few bits below the largest one and sums to fp32 (Fasi et al. 2021; 24
// bits and half of a product's depth at a time before Hopper, 25 bits and the whole depth there); functions have errors
// of up to 2 units in the last place.
enum class Arithmetic { ideal, ampere, hopper };
void set_arithmetic(Arithmetic arithmetic);
Arithmetic arithmetic();

// The bytes of shared memory that a block may have: at first those of the architecture 9.0.
constexpr int usual_shared_memory = 227 << 10;
void set_most_shared_memory(int bytes);
int most_shared_memory();

// Throws std::runtime_error for undefined behaviour on a GPU, and for blocks that wait for each other.
void run_grid(std::int64_t blocks, int threads, int shared_bytes, const std::function<void()>& kernel);

// Faults that can be put into a kernel, one at a time, to check that the tests find them.
enum class Fault { no_barrier, loose_wait, no_bound, no_alignment, shifted_draw, no_turn, no_number };

struct Site {
  unsigned line = 0;
  Fault fault;
  std::string_view file;
  auto operator<=>(const Site&) const = default;
};

const std::set<Site>& sites();    // all sites that this process has reached so far
void break_at(const Site& site);  // from now on

// For emulated/gpu.h, called by the running thread of the running block.
int thread_index();
std::int64_t block_index();
unsigned char* shared_memory();
void sync_threads(const std::source_location& where);
bool is_broken(Fault fault, const std::source_location& where);
void wait_for(const unsigned* counter, unsigned least, const std::source_location& where);
void require_aligned(const void* address, std::size_t bytes);
void start_copy(void* shared, const void* global, bool valid);
void commit_copies();
void wait_copies(int groups);

// Waits until all lanes of the warp have arrived with their arguments; the last one calls `all(arguments by lane)`.
void collective(const char* name, void* argument, void (*all)(void* const (&arguments)[32]));

}  // namespace metaformer::emulator
