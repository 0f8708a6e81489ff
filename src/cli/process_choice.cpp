#include "cli/process_choice.h"

#include <fstream>
#include <thread>

#include "base/child_process.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/command_line.h"
#include "distributed/c10d_group.h"
#include "distributed/launch.h"
#include "ops/device.h"

namespace metaformer {

namespace {

// Divides the processors of a machine among its processes, unless the user has set the number of threads.
void set_threads(const Launch& launch) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(std::max(1, processors / launch.local_size));
}

// Only the first process logs what happens; the others log why they fail.
void mute() {
  log::set_errors_only();
  set_stop_notice(nullptr);
}

void do_with(ProcessGroup& group, const std::function<void(ProcessGroup&)>& work) {
  try {
    work(group);
  } catch (const Interrupted& interrupted) {
    group.announce_failure(fmt::format("signal {}", interrupted.signal()));
    throw;
  } catch (const Error& error) {
    if (group.announce_failure(error.what())) throw;
    log::record(error.what());  // in the log of this rank; the first one prints it
    throw ProcessesFailed(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    group.announce_failure(is_out_of_memory(error) ? "out of memory: " + describe_out_of_memory(error)
                                                   : first_line(error));
    throw;
  }
}

}  // namespace

std::vector<std::string> process_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

void ProcessChoice::add_to(CLI::App& command) {
  command
      .add_option(
          "--processes", processes,
          "number of processes on this machine that share the work; not with torchrun, srun or mpirun, which set it")
      ->transform(whole_number(1, 1024));
  add_whole_number(command, "--process-timeout", timeout_seconds, 1, 1 << 20,
                   "seconds without an answer after which a process counts as lost");
}

std::string device_for(const ProcessGroup& group, const std::string& name) {
  if (group.size() == 1 || (name != "auto" && name != "cuda") || !torch::cuda::is_available()) return name;
  const auto devices = static_cast<int>(torch::cuda::device_count());
  if (group.local_rank() >= devices)
    fail_usage("--device {}: this machine has {} CUDA device{} for more processes; start as many, or give --device cpu",
               name, devices, devices == 1 ? "" : "s");
  return fmt::format("cuda:{}", group.local_rank());
}

void ProcessChoice::run(const std::function<void(ProcessGroup&)>& work) const {
  const std::chrono::seconds timeout(timeout_seconds);
  const auto launch = find_launch();
  if (!launch && processes == 1) return work(one_process());
  if (!launch) {
    set_stop_notice(nullptr);
    const int code = run_local_processes(processes, process_arguments(), timeout);
    if (code != 0) throw ProcessesFailed(code);
    return;
  }
  if (launch->launcher == "--processes")
    end_with_parent(launch->parent);
  else if (processes > 1)
    fail_usage("--processes {}: {} has already started {} processes", processes, launch->launcher, launch->size);
  set_threads(*launch);
  if (launch->rank > 0) mute();
  do_with(*make_c10d_group(*launch, timeout), work);
}

}  // namespace metaformer
