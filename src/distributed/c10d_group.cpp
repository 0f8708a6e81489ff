#include <c10/util/Logging.h>
#include <dlfcn.h>
#include <fmt/format.h>

// Without this macro the headers are empty.
#define USE_C10D_GLOO
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/platform.h"
#include "base/signals.h"
#include "distributed/launch.h"
#include "distributed/process_group.h"
#include "ops/autocast.h"
#include "ops/device.h"

namespace metaformer {

namespace {

using torch::Tensor;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

// Keys in the store: the number of failed processes, the reason of the first failure, and the reason of rank 0's
// failure.
constexpr auto failures_key = "failures", failure_key = "failure", failure_of_first_rank_key = "failure of rank 0";

constexpr std::chrono::seconds time_to_read(2);

// Runs work() in a thread of its own, because LibTorch's handshakes end neither at a signal nor, if the peer accepts
// the connection but sends nothing, at their timeout. Throws Interrupted at a stop signal, and std::runtime_error after
// `time`; the thread then continues, so work must own what it uses. SIGPIPE does not end the threads that LibTorch and
// Gloo start there: writing to a process that has ended gives an error instead.
template <class Work>
auto within(std::chrono::milliseconds time, Work work) -> decltype(work()) {
  constexpr std::chrono::milliseconds patience(20);
  std::packaged_task<decltype(work())()> task([work = std::move(work)] {
    hold_broken_pipes();
    return work();
  });
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  const auto end = std::chrono::steady_clock::now() + time;
  while (result.wait_for(patience) != std::future_status::ready) {
    throw_if_stopped();
    if (std::chrono::steady_clock::now() >= end) throw std::runtime_error("no answer");
  }
  return result.get();
}

StorePointer make_store(const Launch& launch, std::chrono::seconds timeout) {
  StorePointer store;
  if (!launch.store_file.empty()) {
    store = c10::make_intrusive<c10d::FileStore>(launch.store_file, launch.size);
  } else {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(launch.port);
    options.isServer = launch.rank == 0 && !launch.store_is_there;
    options.waitWorkers = false;
    options.timeout = timeout;
    store = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
  }
  store->setTimeout(timeout);
  return c10::make_intrusive<c10d::PrefixStore>("metaformer/" + launch.attempt, store);
}

std::shared_ptr<::gloo::transport::Device> make_device(const Launch& launch) {
  using Group = c10d::ProcessGroupGloo;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) return Group::createDeviceForInterface(interface);
  return launch.local_size == launch.size ? Group::createDeviceForHostname("127.0.0.1") : Group::createDefaultDevice();
}

using Backend = c10::intrusive_ptr<c10d::Backend>;

// Throws Error (exit code 2) if this build has no NCCL, or it cannot be loaded.
Backend make_nccl(const StorePointer& store, const Launch& launch, std::chrono::milliseconds timeout) {
  void* library = open_own_library("libmetaformer_nccl.so");
  const char* problem = library == nullptr ? dlerror() : nullptr;
  if (library == nullptr)
    throw Error(ExitCode::usage,
                fmt::format("several processes with CUDA need NCCL: {}", problem ? problem : "absent"));
  using Make = void (*)(const StorePointer&, int, int, std::chrono::milliseconds, Backend&);
  Backend backend;
  reinterpret_cast<Make>(dlsym(library, "metaformer_make_nccl"))(c10::make_intrusive<c10d::PrefixStore>("nccl", store),
                                                                 launch.rank, launch.size, timeout, backend);
  return backend;
}

class C10dGroup : public ProcessGroup {
 public:
  C10dGroup(const Launch& launch, std::chrono::seconds timeout) : launch_(launch), timeout_(timeout) {
    // Suppresses LibTorch's own messages with their stack traces, so that an error is one line.
    constexpr int fatal_only = 3;
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = fatal_only;
    constexpr std::chrono::seconds longer(1);  // LibTorch's own timeout, if it works, leaves no thread behind
    guarded([&] {
      store_ = within(timeout + longer, [launch, timeout] { return make_store(launch, timeout); });
      gloo_ = within(timeout + longer, [launch, timeout, store = store_] {
        auto options = c10d::ProcessGroupGloo::Options::create(timeout);
        options->devices.push_back(make_device(launch));
        return c10::make_intrusive<c10d::ProcessGroupGloo>(store, launch.rank, launch.size, options);
      });
    });
  }

  int rank() const override { return launch_.rank; }
  int local_rank() const override { return launch_.local_rank; }
  int size() const override { return launch_.size; }

  PendingSum start_sum(const Tensor& x) override {
    constexpr std::int64_t least_elements = 1024;  // for fewer, the messages of parts cost more than their bytes
    if (is_added_in_order(x))
      return x.numel() < least_elements ? start_gathered_sum(x, std::nullopt) : start_sum_by_parts(x);
    std::vector<Tensor> list = {x};
    return end_of(guarded([&] { return backend_of(x).allreduce(list); }));
  }

  PendingSum start_sum_on(const Tensor& x, int root) override {
    if (is_added_in_order(x)) return start_gathered_sum(x, root);
    std::vector<Tensor> list = {x};
    c10d::ReduceOptions options;
    options.rootRank = root;
    return end_of(guarded([&] { return backend_of(x).reduce(list, options); }));
  }

  void broadcast(const Tensor& x, int root) override {
    std::vector<Tensor> list = {x};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    guarded([&] { backend_of(x).broadcast(list, options)->wait(); });
    count_write(x);
  }

  std::vector<std::string> gather(const std::string& bytes) override {
    const auto sizes_r = gathered(torch::tensor({static_cast<std::int64_t>(bytes.size())}));
    const auto longest = torch::cat(sizes_r).max().item<std::int64_t>();
    auto padded = torch::zeros({longest}, torch::kByte);
    std::copy(bytes.begin(), bytes.end(), padded.data_ptr<std::uint8_t>());
    const auto all = gathered(padded);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < all.size(); ++i)
      texts.emplace_back(reinterpret_cast<const char*>(all[i].const_data_ptr<std::uint8_t>()),
                         static_cast<std::size_t>(sizes_r[i].item<std::int64_t>()));
    return texts;
  }

  bool announce_failure(const std::string& why) override {
    const StopDeferral finishes;
    try {
      // The reason of rank 0, after this process has announced its own.
      const auto first = within(2 * time_to_read, [store = store_, rank = rank(), why]() -> std::string {
        if (rank == 0) store->set(failure_of_first_rank_key, why);
        if (store->add(failures_key, 1) == 1) store->set(failure_key, fmt::format("rank {}: {}", rank, why));
        if (rank == 0) return "";
        store->wait({failure_of_first_rank_key}, time_to_read);  // rank 0 may fail a little later for the same reason
        return store->get_to_str(failure_of_first_rank_key);
      });
      if (rank() > 0) return first != why;
      // The store ends with this process, so the others get time to read it.
      if (!launch_.store_is_there && launch_.store_file.empty()) std::this_thread::sleep_for(time_to_read);
    } catch (const std::exception&) {
      // The process with the store has ended, so the others know of a failure.
    }
    return true;
  }

 private:
  PendingSum end_of(c10::intrusive_ptr<c10d::Work> work) {
    return [this, work] { guarded([&] { work->wait(); }); };
  }

  // Gloo adds in an order that depends on the place in a tensor. Two terms have the same sum in any order.
  bool is_added_in_order(const Tensor& x) const { return size() > 2 && !x.is_cuda(); }

  static void add_in_order(const Tensor& sum, const std::vector<Tensor>& terms) {
    const torch::NoGradGuard no_grad;
    sum.copy_(terms.front());
    for (std::size_t rank = 1; rank < terms.size(); ++rank) sum.add_(terms[rank]);
  }

  // Uninitialised tensors for the x of every rank.
  std::vector<Tensor> one_for_each_rank(const Tensor& x) const {
    std::vector<Tensor> all;
    for (int i = 0; i < size(); ++i) all.push_back(torch::empty_like(x));
    return all;
  }

  // Gathers all terms of the sum on every process, or only on the process `root`, which adds them up.
  PendingSum start_gathered_sum(const Tensor& x, std::optional<int> root) {
    const auto terms = std::make_shared<std::vector<std::vector<Tensor>>>();
    if (!root || rank() == *root) terms->push_back(one_for_each_rank(x));
    std::vector<Tensor> own = {x};
    c10d::GatherOptions options;
    options.rootRank = root.value_or(0);
    const auto wait =
        end_of(guarded([&] { return root ? gloo_->gather(*terms, own, options) : gloo_->allgather(*terms, own); }));
    return [x, terms, wait] {
      wait();
      if (!terms->empty()) add_in_order(x, terms->front());
    };
  }

  // Each process adds up an equal part of a large tensor, and sends the sum to the others: as many bytes as in a ring.
  // The remainder of the division is gathered.
  PendingSum start_sum_by_parts(const Tensor& x) {
    const auto flat = x.view({-1}), divided = flat.narrow(0, 0, x.numel() / size() * size()),
               rest = flat.narrow(0, divided.numel(), x.numel() - divided.numel());
    const auto terms = torch::empty({size(), divided.numel() / size()}, x.options());  // of this rank's part, by rank
    const auto wait = start_exchange(divided, terms.view({-1}));
    const auto wait_for_rest = rest.numel() > 0 ? start_gathered_sum(rest, std::nullopt) : [] {};
    return [this, divided, terms, wait, wait_for_rest] {
      wait();
      const auto sums = torch::empty_like(terms);
      add_in_order(sums[0], terms.unbind());
      for (int rank = 1; rank < size(); ++rank) sums[rank].copy_(sums[0]);
      start_exchange(sums.view({-1}), divided)();
      wait_for_rest();
    };
  }

  // Sends each rank its part of `sent`.
  PendingSum start_exchange(Tensor sent, Tensor received) {
    std::vector<std::int64_t> equal_parts;
    return end_of(guarded([&] { return gloo_->alltoall_base(received, sent, equal_parts, equal_parts); }));
  }

  c10d::Backend& backend_of(const Tensor& x) {
    if (!x.is_cuda()) return *gloo_;
    if (!nccl_) nccl_ = make_nccl(store_, launch_, timeout_);
    return *nccl_;
  }

  std::vector<Tensor> gathered(const Tensor& x) {
    std::vector<std::vector<Tensor>> out = {one_for_each_rank(x)};
    std::vector<Tensor> in = {x};
    guarded([&] { gloo_->allgather(out, in)->wait(); });
    return out[0];
  }

  // Runs work() and converts exceptions of c10d into errors of this program.
  template <class Work>
  auto guarded(const Work& work) -> decltype(work()) {
    const auto start = std::chrono::steady_clock::now();
    try {
      return work();
    } catch (const Error&) {
      throw;
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      const bool timed_out = std::chrono::steady_clock::now() - start >= timeout_;
      throw Error(ExitCode::process_lost, lost(timed_out, error.what()));
    }
  }

  std::string lost(bool timed_out, std::string_view why) const {
    const auto who = fmt::format("rank {} of {}", rank(), size());
    if (const auto reason = announced()) return fmt::format("{}: stops because of {}", who, *reason);
    if (timed_out) return fmt::format("{}: another process has not answered for {} s", who, timeout_.count());
    return fmt::format("{}: another process has ended ({})", who, reason_of(why));
  }

  // The first line of an error, without the location in Gloo's source before it.
  static std::string_view reason_of(std::string_view why) {
    why = why.substr(0, why.find('\n'));
    const auto place_end = why.starts_with('[') ? why.find("] ") : std::string_view::npos;
    return place_end == std::string_view::npos ? why : why.substr(place_end + 2);
  }

  // The reason that another process has announced for its end, if any.
  std::optional<std::string> announced() const {
    if (!store_) return std::nullopt;
    const StopDeferral finishes;
    try {
      return within(time_to_read, [store = store_]() -> std::optional<std::string> {
        if (!store->check({failure_key})) return std::nullopt;
        return store->get_to_str(failure_key);
      });
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  Launch launch_;
  std::chrono::seconds timeout_;
  StorePointer store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  Backend nccl_;  // created for the first tensor on a CUDA device
};

}  // namespace

std::shared_ptr<ProcessGroup> make_c10d_group(const Launch& launch, std::chrono::seconds timeout) {
  return std::make_shared<C10dGroup>(launch, timeout);
}

}  // namespace metaformer
