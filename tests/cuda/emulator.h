#pragma once
// Runs kernels on the CPU, for tests: the threads of a block are fibers on one thread of the host. What a GPU leaves
// open, the order in which warps run and the moment at which an asynchronous copy lands, is a choice here, so that a
// test can try the nasty ones; what a GPU leaves undefined (a barrier that not all threads reach, a collective of half
// a warp) is an error here. Shared memory starts as NaN and ends at a page that must not be touched. Three blocks run
// at a time.

#include <cstdint>
#include <functional>
#include <set>
#include <source_location>
#include <string_view>

namespace metaformer::emulator {

enum class Order { first_come, last_come, random };  // which of those that can run does
enum class Copies { eager, lazy, random };  // asynchronous copies land when started, when waited for, or between

struct Schedule {
  Order order = Order::first_come;  // of the threads of a block
  Copies copies = Copies::eager;
  std::uint64_t seed = 0;
  Order blocks = Order::random;      // which of the blocks that have begun
  Order beginnings = Order::random;  // in which order they begin
};

void set_schedule(const Schedule& schedule);

// How tensor cores add, and what approximate functions are off by. `ideal`: every sum rounded, functions exact. The
// GPUs' own: addends cut to a few bits below the largest one, sums cut to fp32 (Fasi et al. 2021; 24 bits and half of a
// product's depth at a time before Hopper, 25 bits and all of it there), functions off by up to 2 units in the last
// place.
enum class Arithmetic { ideal, ampere, hopper };
void set_arithmetic(Arithmetic arithmetic);
Arithmetic arithmetic();

// Throws std::runtime_error for what would be undefined on a GPU, and for blocks that wait for each other.
void run_grid(std::int64_t blocks, int threads, int shared_bytes, const std::function<void()>& kernel);

// Places of a kernel that can be made wrong, one at a time: to see that the tests notice.
enum class Fault { no_barrier, loose_wait, no_bound, no_alignment, shifted_draw, no_turn, no_number };

struct Site {
  unsigned line = 0;
  Fault fault;
  std::string_view file;
  auto operator<=>(const Site&) const = default;
};

const std::set<Site>& sites();    // those reached so far in this process
void break_at(const Site& site);  // from now on

// For emulated/gpu.h. Each is called by the running thread of the running block.
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

// Waits until all lanes of the warp have come with their arguments; the last one calls `all(arguments by lane)`.
void collective(const char* name, void* argument, void (*all)(void* const (&arguments)[32]));

}  // namespace metaformer::emulator
