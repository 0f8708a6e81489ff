#include "cuda/emulator.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/kernel_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace metaformer::emulator {

namespace {

// AddressSanitizer must know the current stack.
#if defined(__SANITIZE_ADDRESS__)
void start_switch(void** fake, const void* stack, std::size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
void finish_switch(void* fake, const void** stack, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
#else
void start_switch(void**, const void*, std::size_t) {}
void finish_switch(void*, const void**, std::size_t*) {}
#endif

constexpr int warp_size = 32;
constexpr std::size_t stack_bytes = 128 << 10;

struct Copy {
  void* shared;
  const void* global;
  bool valid;
  void land() const { valid ? std::memcpy(shared, global, 16) : std::memset(shared, 0, 16); }
};

enum class State { ready, at_barrier, in_collective, waiting, done };

struct Thread {
  std::unique_ptr<unsigned char[]> stack{new unsigned char[stack_bytes]};  // outlives the fiber
  boost::context::fiber fiber;
  State state = State::done;
  std::deque<std::vector<Copy>> copies;  // groups, the newest (not yet committed) last
  std::exception_ptr failure;
  const unsigned* counter = nullptr;  // in State::waiting: waits until it is at least `least`
  unsigned least = 0;
};

// Uses the stack of a thread, which outlives its fiber.
struct StackOf {
  Thread& thread;
  boost::context::stack_context allocate() const {
    boost::context::stack_context context;
    context.size = stack_bytes;
    context.sp = thread.stack.get() + stack_bytes;
    return context;
  }
  void deallocate(boost::context::stack_context&) const {}
};

struct Warp {
  int arrived = 0;
  const char* name = nullptr;
  void* arguments[warp_size] = {};
};

Schedule the_schedule;
Arithmetic the_arithmetic = Arithmetic::ideal;
int shared_memory_limit = usual_shared_memory;
std::set<Site> reached;
std::optional<Site> broken;

class Grid;
Grid* the_grid = nullptr;

// A block that has begun and not ended.
struct Block {
  Block(std::size_t thread_count, std::size_t shared_size)
      : threads(thread_count), warps(thread_count / warp_size), shared_bytes(shared_size), shared(shared_size) {}

  std::int64_t index = -1;  // -1 when no blocks are left
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::size_t shared_bytes;
  KernelMemory shared;
  std::vector<std::size_t> ready, waiting;

  void start(std::int64_t number) {
    index = number;
    std::memset(shared.data(), 0xff, shared_bytes);  // NaN in every type
    for (auto& warp : warps) warp.arrived = 0;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      threads[i].copies.assign(1, {});
      make_ready(i);
    }
  }

  void make_ready(std::size_t thread) {
    threads[thread].state = State::ready;
    ready.push_back(thread);
  }

  std::size_t count(State state) const {
    return static_cast<std::size_t>(
        std::count_if(threads.begin(), threads.end(), [&](const Thread& t) { return t.state == state; }));
  }

  void wake() {
    const auto still = std::stable_partition(waiting.begin(), waiting.end(),
                                             [&](std::size_t i) { return *threads[i].counter < threads[i].least; });
    std::for_each(still, waiting.end(), [&](std::size_t i) { make_ready(i); });
    waiting.erase(still, waiting.end());
  }

  void open_barrier() {
    if (count(State::in_collective) > 0) throw std::runtime_error("a collective that part of a warp does not reach");
    if (count(State::at_barrier) != threads.size())
      throw std::runtime_error("a barrier that some threads of the block do not reach");
    for (std::size_t i = 0; i < threads.size(); ++i) make_ready(i);
  }
};

class Grid {
 public:
  Grid(std::int64_t blocks, int threads, int shared_bytes, const std::function<void()>& kernel)
      : kernel_(kernel), count_(blocks), random_(the_schedule.seed) {
    if (threads % warp_size != 0) throw std::runtime_error("a block of part of a warp");
    order_.resize(static_cast<std::size_t>(blocks));
    std::iota(order_.begin(), order_.end(), 0);
    if (the_schedule.beginnings == Order::random) std::shuffle(order_.begin(), order_.end(), random_);
    if (the_schedule.beginnings == Order::last_come) std::reverse(order_.begin(), order_.end());
    constexpr std::int64_t resident = 3;  // blocks at a time
    for (std::int64_t i = 0; i < std::min(blocks, resident); ++i) {
      blocks_.push_back(std::make_unique<Block>(static_cast<std::size_t>(threads),
                                                static_cast<std::size_t>((shared_bytes + 127) / 128 * 128)));
      for (auto& thread : blocks_.back()->threads) make_fiber(thread);
      begin_next(*blocks_.back());
    }
  }

  void run() {
    while (auto* block = next_block()) {
      resume(*block, next_thread(*block));
      if (current().failure) std::rethrow_exception(std::exchange(current().failure, nullptr));
    }
    finished_ = true;  // lets the fibers return
    for (const auto& block : blocks_)
      for (std::size_t i = 0; i < block->threads.size(); ++i) resume(*block, i);
  }

  int thread() const { return static_cast<int>(thread_); }
  std::int64_t block() const { return block_->index; }
  unsigned char* shared() const { return block_->shared.data(); }
  Thread& current() { return block_->threads[thread_]; }
  std::uint64_t draw() { return random_(); }

  void yield(State state) {
    current().state = state;
    switch_to_scheduler();
  }

  void wait(const unsigned* counter, unsigned least) {
    if (*counter >= least) return;
    current().counter = counter;
    current().least = least;
    block_->waiting.push_back(thread_);
    yield(State::waiting);
  }

  void collective(const char* name, void* argument, void (*all)(void* const (&)[warp_size])) {
    const auto number = thread_ / warp_size;
    auto& warp = block_->warps[number];
    if (warp.arrived > 0 && std::strcmp(warp.name, name) != 0)
      throw std::runtime_error(std::string("lanes of a warp in ") + warp.name + " and in " + name);
    warp.name = name;
    warp.arguments[thread_ % warp_size] = argument;
    if (++warp.arrived < warp_size) {
      yield(State::in_collective);
      return;
    }
    all(warp.arguments);
    warp.arrived = 0;
    for (auto i = number * warp_size; i < (number + 1) * warp_size; ++i) block_->make_ready(i);
    // The last lane to arrive need not go on first.
    switch_to_scheduler();
  }

 private:
  void begin_next(Block& block) { block.start(order_[static_cast<std::size_t>(begun_++)]); }

  void make_fiber(Thread& thread) {
    thread.fiber =
        boost::context::fiber(std::allocator_arg, StackOf{thread}, [this](boost::context::fiber&& scheduler) {
          scheduler_ = std::move(scheduler);
          finish_switch(nullptr, &scheduler_stack_, &scheduler_bytes_);
          while (!finished_) {
            try {
              kernel_();
            } catch (const boost::context::detail::forced_unwind&) {  // the grid ends early
              throw;
            } catch (...) {
              current().failure = std::current_exception();
            }
            yield(State::done);
          }
          start_switch(nullptr, scheduler_stack_, scheduler_bytes_);
          return std::move(scheduler_);
        });
  }

  // Whether the block has a thread that can run. The next block begins in the place of a block that has ended.
  bool can_run(Block& block) {
    if (block.index < 0) return false;
    if (block.ready.empty()) block.wake();
    if (!block.ready.empty()) return true;
    if (!block.waiting.empty()) return false;
    if (block.count(State::done) == block.threads.size()) {
      if (begun_ == count_) {
        block.index = -1;
        return false;
      }
      begin_next(block);
    } else {
      block.open_barrier();
    }
    return true;
  }

  // nullptr after the last.
  Block* next_block() {
    able_.clear();
    bool any = false;
    for (const auto& block : blocks_) {
      if (can_run(*block)) able_.push_back(block.get());
      any = any || block->index >= 0;
    }
    if (able_.empty() && any) throw std::runtime_error("blocks that wait for each other");
    if (able_.empty()) return nullptr;
    if (the_schedule.blocks != Order::random)
      std::sort(able_.begin(), able_.end(), [](const Block* a, const Block* b) { return a->index < b->index; });
    return able_[pick(the_schedule.blocks, able_.size())];
  }

  std::size_t next_thread(Block& block) {
    const auto at = block.ready.begin() + static_cast<std::ptrdiff_t>(pick(the_schedule.order, block.ready.size()));
    const auto thread = *at;
    block.ready.erase(at);
    return thread;
  }

  // An index below `count`.
  std::size_t pick(Order order, std::size_t count) {
    if (order == Order::random) return draw() % count;
    return order == Order::first_come ? 0 : count - 1;
  }

  void resume(Block& block, std::size_t thread) {
    block_ = &block;
    thread_ = thread;
    start_switch(&scheduler_fake_, current().stack.get(), stack_bytes);
    current().fiber = std::move(current().fiber).resume();
    finish_switch(scheduler_fake_, nullptr, nullptr);
  }
  void switch_to_scheduler() {
    void* fake = nullptr;
    start_switch(&fake, scheduler_stack_, scheduler_bytes_);
    scheduler_ = std::move(scheduler_).resume();
    finish_switch(fake, &scheduler_stack_, &scheduler_bytes_);
  }

  const std::function<void()>& kernel_;
  std::int64_t count_, begun_ = 0;   // numbers of blocks
  std::vector<std::int64_t> order_;  // the order in which blocks begin
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> able_;  // blocks that can run
  std::mt19937_64 random_;
  Block* block_ = nullptr;  // the running block
  std::size_t thread_ = 0;
  boost::context::fiber scheduler_;
  void* scheduler_fake_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_bytes_ = 0;
  bool finished_ = false;
};

}  // namespace

void set_most_shared_memory(int bytes) { shared_memory_limit = bytes; }
int most_shared_memory() { return shared_memory_limit; }
void set_schedule(const Schedule& schedule) { the_schedule = schedule; }
void set_arithmetic(Arithmetic arithmetic) { the_arithmetic = arithmetic; }
Arithmetic arithmetic() { return the_arithmetic; }

void run_grid(std::int64_t blocks, int threads, int shared_bytes, const std::function<void()>& kernel) {
  if (shared_bytes > shared_memory_limit) throw std::runtime_error("more shared memory than the GPU has");
  if (blocks < 1) throw std::runtime_error("a grid without blocks");
  Grid grid(blocks, threads, shared_bytes, kernel);
  the_grid = &grid;
  grid.run();
  the_grid = nullptr;
}

const std::set<Site>& sites() { return reached; }
void break_at(const Site& site) { broken = site; }

int thread_index() { return the_grid->thread(); }
std::int64_t block_index() { return the_grid->block(); }
unsigned char* shared_memory() { return the_grid->shared(); }

bool is_broken(Fault fault, const std::source_location& where) {
  const Site site{where.line(), fault, where.file_name()};
  reached.insert(site);
  return broken == site;
}

void sync_threads(const std::source_location& where) {
  if (!is_broken(Fault::no_barrier, where)) the_grid->yield(State::at_barrier);
}

void wait_for(const unsigned* counter, unsigned least, const std::source_location& where) {
  if (!is_broken(Fault::no_turn, where)) the_grid->wait(counter, least);
}

void require_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) throw std::runtime_error("an access that is not aligned");
}

void start_copy(void* shared, const void* global, bool valid) {
  require_aligned(shared, 16);
  require_aligned(global, 16);
  const Copy copy{shared, global, valid};
  const bool now =
      the_schedule.copies == Copies::eager || (the_schedule.copies == Copies::random && the_grid->draw() % 2 == 0);
  if (now) {
    copy.land();
  } else {
    the_grid->current().copies.back().push_back(copy);
  }
}

void commit_copies() { the_grid->current().copies.emplace_back(); }

void wait_copies(int groups) {
  auto& copies = the_grid->current().copies;
  while (copies.size() > static_cast<std::size_t>(groups) + 1) {
    for (const auto& copy : copies.front()) copy.land();
    copies.pop_front();
  }
}

void collective(const char* name, void* argument, void (*all)(void* const (&)[warp_size])) {
  the_grid->collective(name, argument, all);
}

}  // namespace metaformer::emulator
