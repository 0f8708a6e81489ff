// Blocks of the emulator that pass results to each other.

#include "cuda/emulator.h"
#include "cuda/metric_attention.h"
#include "gpu.h"
#include "support/catch.h"

namespace metaformer {

namespace {

using emulator::Order;

constexpr std::int64_t blocks = 7;

struct HandedOn {
  unsigned begun = 0, turn = 0;
  float sum = 1;
};

// The result depends on the order of these sums.
void add_in_turn_of(HandedOn* shared, unsigned block) {
  gpu::wait_for(&shared->turn, block);
  gpu::store_handed_on(&shared->sum, 0.5F * gpu::load_handed_on(&shared->sum) + static_cast<float>(block));
  gpu::announce(&shared->turn, block + 1);
}

// Add in the order in which blocks begin, or in that of their indices.
void add_in_turn(HandedOn* shared) {
  if (gpu::thread_index() == 0) add_in_turn_of(shared, gpu::take_number(&shared->begun));
}
void add_by_index(HandedOn* shared) {
  if (gpu::thread_index() == 0) add_in_turn_of(shared, static_cast<unsigned>(gpu::block_index()));
}

// Every block waits for the last one, which begins only after another has ended.
void wait_for_a_later_one(HandedOn* shared) {
  if (gpu::block_index() == blocks - 1) gpu::announce(&shared->turn, 1);
  if (gpu::thread_index() == 0) gpu::wait_for(&shared->turn, 1);
}

void begin_in(Order beginnings, Order blocks = Order::random) {
  emulator::set_schedule(
      {.order = Order::first_come, .copies = {}, .seed = 3, .blocks = blocks, .beginnings = beginnings});
}

float sum_of(Order order, Order beginnings) {
  begin_in(beginnings, order);
  HandedOn shared;
  gpu::launch(add_in_turn, blocks, gpu::warp_size, 0, nullptr, &shared);
  return shared.sum;
}

}  // namespace

TEST_CASE("blocks that wait for their turn add in the order of the numbers that they take", "[emulator]") {
  float expected = 1;
  for (int block = 0; block < blocks; ++block) expected = 0.5F * expected + static_cast<float>(block);
  const auto orders = {Order::first_come, Order::last_come, Order::random};
  for (const auto order : orders)
    for (const auto beginnings : orders) CHECK(sum_of(order, beginnings) == expected);
}

TEST_CASE("blocks that wait for others by their index depend on the order in which blocks begin", "[emulator]") {
  HandedOn in_order, shared;
  begin_in(Order::first_come);
  CHECK_NOTHROW(gpu::launch(add_by_index, blocks, gpu::warp_size, 0, nullptr, &in_order));
  begin_in(Order::last_come);
  CHECK_THROWS_WITH(gpu::launch(add_by_index, blocks, gpu::warp_size, 0, nullptr, &shared), Mentions("each other"));
}

TEST_CASE("a kernel that needs more shared memory than the emulated GPU has is an error", "[emulator]") {
  constexpr int of_12_0 = 99 << 10;
  HandedOn shared;
  begin_in(Order::first_come);
  const auto start = [&] { gpu::launch(add_in_turn, 1, gpu::warp_size, of_12_0 + 1, nullptr, &shared); };
  CHECK_NOTHROW(start());
  emulator::set_most_shared_memory(of_12_0);
  CHECK_THROWS_WITH(start(), Mentions("shared memory"));
  emulator::set_most_shared_memory(emulator::usual_shared_memory);
}

TEST_CASE("long or wide heads have no short backward pass on a GPU with little shared memory", "[emulator]") {
  const auto exists = [](std::int64_t tokens, int width, const void* values) {
    return cuda::has_short_backward(
        {.width = width, .queries = {.tokens = tokens}, .keys = {.tokens = tokens}, .values = values});
  };
  const int value = 0;
  for (const void* values : {static_cast<const void*>(nullptr), static_cast<const void*>(&value)}) {
    emulator::set_most_shared_memory(emulator::usual_shared_memory);
    CHECK(exists(256, 64, values));
    CHECK_FALSE(exists(257, 64, values));
    CHECK_FALSE(exists(256, 72, values));
    emulator::set_most_shared_memory(99 << 10);
    CHECK_FALSE(exists(129, 64, values));
    CHECK(exists(128, 64, values));
    CHECK(exists(256, 32, values));
  }
  emulator::set_most_shared_memory(emulator::usual_shared_memory);
}

TEST_CASE("blocks that wait for each other are an error", "[emulator]") {
  HandedOn shared;
  begin_in(Order::first_come);
  CHECK_THROWS_WITH(gpu::launch(wait_for_a_later_one, blocks, gpu::warp_size, 0, nullptr, &shared),
                    Mentions("each other"));
}

}  // namespace metaformer
