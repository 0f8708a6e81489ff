#include "cuda/emulator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace metaformer::emulator {

namespace {

constexpr int warp_size = 32;
constexpr std::size_t stack_bytes = 128 << 10;

struct Copy {
  void* shared;
  const void* global;
  bool valid;
  void land() const {
    if (valid) {
      std::memcpy(shared, global, 16);
    } else {
      std::memset(shared, 0, 16);
    }
  }
};

enum class State { ready, at_barrier, in_collective, done };

struct Thread {
  boost::context::fiber fiber;
  State state = State::done;
  std::deque<std::vector<Copy>> copies;  // groups, the newest (not yet committed) last
  std::exception_ptr failure;
  std::unique_ptr<unsigned char[]> stack{new unsigned char[stack_bytes]};
};

// Takes the stack of a thread, which outlives its fiber.
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

// Ends at a page without access.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    base_ = static_cast<unsigned char*>(
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    ::mprotect(base_ + mapped_ - page, page, PROT_NONE);
    start_ = base_ + mapped_ - page - bytes;
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { ::munmap(base_, mapped_); }
  unsigned char* start() const { return start_; }
  void poison() const { std::memset(start_, 0xff, bytes_); }  // NaN in every type

 private:
  std::size_t bytes_, mapped_ = 0;
  unsigned char *base_ = nullptr, *start_ = nullptr;
};

Schedule the_schedule;
Arithmetic the_arithmetic = Arithmetic::ideal;
std::vector<Site> reached;
std::vector<Site> broken;

class Grid;
Grid* the_grid = nullptr;

class Grid {
 public:
  Grid(std::int64_t blocks, int threads, int shared_bytes, const std::function<void()>& kernel)
      : kernel_(kernel),
        blocks_(blocks),
        threads_(static_cast<std::size_t>(threads)),
        warps_(static_cast<std::size_t>(threads / warp_size)),
        shared_(static_cast<std::size_t>((shared_bytes + 127) / 128 * 128)),
        random_(the_schedule.seed) {
    if (threads % warp_size != 0) throw std::runtime_error("a block of part of a warp");
    for (std::size_t i = 0; i < threads_.size(); ++i) make_fiber(threads_[i]);
  }

  void run() {
    for (block_ = 0; block_ < blocks_; ++block_) run_block();
    finished_ = true;  // lets the fibers return
    for (std::size_t i = 0; i < threads_.size(); ++i) resume(i);
  }

  int thread() const { return static_cast<int>(current_); }
  std::int64_t block() const { return block_; }
  unsigned char* shared() const { return shared_.start(); }
  Thread& current() { return threads_[current_]; }
  std::uint64_t draw() { return random_(); }

  void yield(State state) {
    current().state = state;
    switch_to_scheduler();
  }

  void collective(const char* name, void* argument, void (*all)(void* const (&)[warp_size])) {
    const auto number = current_ / warp_size;
    auto& warp = warps_[number];
    if (warp.arrived > 0 && std::strcmp(warp.name, name) != 0)
      throw std::runtime_error(std::string("lanes of a warp in ") + warp.name + " and in " + name);
    warp.name = name;
    warp.arguments[current_ % warp_size] = argument;
    if (++warp.arrived < warp_size) {
      yield(State::in_collective);
      return;
    }
    all(warp.arguments);
    warp.arrived = 0;
    for (auto i = number * warp_size; i < (number + 1) * warp_size; ++i) make_ready(i);
    // The last lane to come does not go on first.
    switch_to_scheduler();
  }

 private:
  void make_fiber(Thread& thread) {
    thread.fiber =
        boost::context::fiber(std::allocator_arg, StackOf{thread}, [this](boost::context::fiber&& scheduler) {
          scheduler_ = std::move(scheduler);
          enter_fiber();
          while (!finished_) {
            try {
              kernel_();
            } catch (...) {
              current().failure = std::current_exception();
            }
            yield(State::done);
          }
          leave_fiber();
          return std::move(scheduler_);
        });
  }

  void run_block() {
    shared_.poison();
    for (auto& warp : warps_) warp.arrived = 0;
    ready_.clear();
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      threads_[i].copies.assign(1, {});
      make_ready(i);
    }
    while (true) {
      while (!ready_.empty()) {
        resume(next());
        if (current().failure) std::rethrow_exception(std::exchange(current().failure, nullptr));
      }
      const auto count = [&](State state) {
        return static_cast<std::size_t>(
            std::count_if(threads_.begin(), threads_.end(), [&](const Thread& t) { return t.state == state; }));
      };
      if (count(State::done) == threads_.size()) return;
      if (count(State::in_collective) > 0) throw std::runtime_error("a collective that part of a warp does not reach");
      if (count(State::at_barrier) != threads_.size())
        throw std::runtime_error("a barrier that some threads of the block do not reach");
      for (std::size_t i = 0; i < threads_.size(); ++i) make_ready(i);
    }
  }

  void make_ready(std::size_t thread) {
    threads_[thread].state = State::ready;
    ready_.push_back(thread);
  }

  std::size_t next() {
    auto at = ready_.begin();
    if (the_schedule.order == Order::last_come) at = ready_.end() - 1;
    if (the_schedule.order == Order::random) at += static_cast<std::ptrdiff_t>(draw() % ready_.size());
    const auto thread = *at;
    ready_.erase(at);
    return thread;
  }

#if defined(__SANITIZE_ADDRESS__)
  // AddressSanitizer must know on which stack it is.
  void resume(std::size_t thread) {
    current_ = thread;
    __sanitizer_start_switch_fiber(&scheduler_fake_, current().stack.get(), stack_bytes);
    current().fiber = std::move(current().fiber).resume();
    __sanitizer_finish_switch_fiber(scheduler_fake_, nullptr, nullptr);
  }
  void switch_to_scheduler() {
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, scheduler_stack_, scheduler_bytes_);
    scheduler_ = std::move(scheduler_).resume();
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack_, &scheduler_bytes_);
  }
  void enter_fiber() { __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_bytes_); }
  void leave_fiber() { __sanitizer_start_switch_fiber(nullptr, scheduler_stack_, scheduler_bytes_); }
  void* scheduler_fake_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_bytes_ = 0;
#else
  void resume(std::size_t thread) {
    current_ = thread;
    current().fiber = std::move(current().fiber).resume();
  }
  void switch_to_scheduler() { scheduler_ = std::move(scheduler_).resume(); }
  void enter_fiber() {}
  void leave_fiber() {}
#endif

  const std::function<void()>& kernel_;
  std::int64_t blocks_, block_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  SharedMemory shared_;
  std::mt19937_64 random_;
  std::vector<std::size_t> ready_;
  std::size_t current_ = 0;
  boost::context::fiber scheduler_;
  bool finished_ = false;
};

}  // namespace

void set_schedule(const Schedule& schedule) { the_schedule = schedule; }
void set_arithmetic(Arithmetic arithmetic) { the_arithmetic = arithmetic; }
Arithmetic arithmetic() { return the_arithmetic; }

void run_grid(std::int64_t blocks, int threads, int shared_bytes, const std::function<void()>& kernel) {
  constexpr int smallest_limit = 101376;  // of a block, on GPUs of 8.6, 8.9 and 12.0
  if (shared_bytes > smallest_limit) throw std::runtime_error("more shared memory than every GPU has");
  Grid grid(blocks, threads, shared_bytes, kernel);
  the_grid = &grid;
  grid.run();
  the_grid = nullptr;
}

std::vector<Site> sites() { return reached; }
void break_at(const Site& site) { broken = {site}; }

int thread_index() { return the_grid->thread(); }
std::int64_t block_index() { return the_grid->block(); }
unsigned char* shared_memory() { return the_grid->shared(); }

bool is_broken(Fault fault, const std::source_location& where) {
  const Site site{fault, where.file_name(), where.line()};
  if (std::find(reached.begin(), reached.end(), site) == reached.end()) reached.push_back(site);
  return !broken.empty() && broken.front() == site;
}

void sync_threads(const std::source_location& where) {
  if (!is_broken(Fault::no_barrier, where)) the_grid->yield(State::at_barrier);
}

void start_copy(void* shared, const void* global, bool valid) {
  const auto aligned = [](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
  if (!aligned(shared) || !aligned(global)) throw std::runtime_error("an asynchronous copy that is not aligned");
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
