#pragma once
// Several processes of a group, each as a thread of the test.

#include <exception>
#include <thread>
#include <vector>

#include "distributed/launch.h"
#include "distributed/process_group.h"
#include "support/temporary_folder.h"

namespace metaformer {

// Calls work(group) as every rank of `size` at once; throws the exception of the lowest rank.
template <class Work>
void together(int size, const Work& work, std::chrono::seconds timeout = std::chrono::seconds(60)) {
  // LibTorch records the work of groups in one buffer of the process, which groups of several threads would share.
  setenv("TORCH_FR_BUFFER_SIZE", "0", 0);
  const TemporaryFolder folder;
  std::vector<std::exception_ptr> problems(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Launch launch{.launcher = "a test", .rank = rank, .size = size, .local_rank = rank, .local_size = size};
        launch.store_file = (folder / "store").string();
        const auto group = make_c10d_group(launch, timeout);
        work(*group);
      } catch (...) {
        problems[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems)
    if (problem) std::rethrow_exception(problem);
}

}  // namespace metaformer
