// Blocks of the emulator that hand results on to each other.

#include "cuda/emulator.h"
#include "gpu.h"
#include "support/catch.h"

namespace metaformer {

namespace {

using emulator::Order;

constexpr std::int64_t blocks = 7;

struct HandedOn {
  unsigned turn = 0;
  float sum = 1;
};

// Every block in its turn; the order of these sums shows.
void add_in_turn(HandedOn* shared) {
  if (gpu::thread_index() != 0) return;
  const auto block = static_cast<unsigned>(gpu::block_index());
  gpu::wait_for(&shared->turn, block);
  gpu::store_handed_on(&shared->sum, 0.5F * gpu::load_handed_on(&shared->sum) + static_cast<float>(block));
  gpu::announce(&shared->turn, block + 1);
}

// Waits for a block that begins only when this one has ended.
void wait_for_a_later_one(HandedOn* shared) {
  if (gpu::block_index() == blocks - 1) gpu::announce(&shared->turn, 1);
  if (gpu::thread_index() == 0) gpu::wait_for(&shared->turn, 1);
}

float sum_of(Order order) {
  emulator::set_schedule({.order = Order::first_come, .copies = {}, .seed = 3, .blocks = order});
  HandedOn shared;
  gpu::launch(add_in_turn, blocks, gpu::warp_size, 0, nullptr, &shared);
  return shared.sum;
}

}  // namespace

TEST_CASE("blocks that wait for their turn add in the order of their numbers", "[emulator]") {
  float expected = 1;
  for (int block = 0; block < blocks; ++block) expected = 0.5F * expected + static_cast<float>(block);
  for (const auto order : {Order::first_come, Order::last_come, Order::random}) CHECK(sum_of(order) == expected);
}

TEST_CASE("blocks that can only wait for each other are an error", "[emulator]") {
  HandedOn shared;
  CHECK_THROWS_WITH(gpu::launch(wait_for_a_later_one, blocks, gpu::warp_size, 0, nullptr, &shared),
                    Mentions("each other"));
}

}  // namespace metaformer
