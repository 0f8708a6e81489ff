#include "ops/device.h"

#include <ATen/DeviceAccelerator.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/error.h"
#include "base/platform.h"
#include "base/text.h"
#include "cuda/devices.h"

namespace metaformer {

namespace {

// LibTorch's CUDA library registers itself when it is loaded.
void load_cuda_backend() {
  static void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    throw Error(ExitCode::usage, fmt::format("LibTorch's CUDA part cannot be loaded: {}", dlerror()));
}

torch::Device use_cuda(const cuda::Devices& devices, std::size_t index) {
  if (index >= devices.list.size())
    throw Error(ExitCode::usage,
                fmt::format("no device cuda:{}: this machine has {} CUDA devices", index, devices.list.size()));
  const auto& chosen = devices.list[index];
  if (!chosen.runs_our_kernels)
    throw Error(ExitCode::usage, fmt::format("cuda:{} ({}) has compute capability {}.{}; this build has no code for it",
                                             index, chosen.name, chosen.major, chosen.minor));
  load_cuda_backend();
  if (!torch::cuda::is_available())
    throw Error(ExitCode::usage, "LibTorch cannot use the CUDA device (driver too old?)");
  at::accelerator::setDeviceIndex(static_cast<torch::DeviceIndex>(index));  // the default device
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

std::size_t parse_index(const std::string& name) {
  if (name == "cuda") return 0;
  const auto index = name.starts_with("cuda:") ? as_number<std::size_t>(name.substr(5)) : std::nullopt;
  if (!index) fail_usage("--device {}: expected auto, cpu, cuda or cuda:N", name);
  return *index;
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "CPU";
}

}  // namespace

torch::Device select_device(const std::string& name) {
  if (name == "cpu") return torch::kCPU;
  if (name == "auto") {
    const auto devices = cuda::find_devices();
    return !devices.list.empty() && devices.list[0].runs_our_kernels ? use_cuda(devices, 0)
                                                                     : torch::Device(torch::kCPU);
  }
  const auto index = parse_index(name);
  const auto devices = cuda::find_devices();
  if (devices.list.empty())
    throw Error(ExitCode::usage, fmt::format("--device {}: no CUDA device can be used: {}", name, devices.problem));
  return use_cuda(devices, index);
}

std::string device_description(torch::Device device) {
  if (device.is_cpu()) return cpu_model();
  return fmt::format("{} {}", device.str(),
                     cuda::find_devices().list.at(static_cast<std::size_t>(device.index())).name);
}

void wait_for(torch::Device device) {
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
}

std::int64_t peak_memory_bytes(torch::Device device) {
  if (device.is_cuda()) return at::accelerator::getDeviceStats(device.index()).allocated_bytes[0].peak;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

bool is_out_of_memory(const std::exception& error) {
  // std::length_error: more elements than a container can ever have.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr)
    return true;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error))
    return system->code() == std::errc::not_enough_memory;
  return dynamic_cast<const c10::Error*>(&error) != nullptr &&
         first_line(error).find("can't allocate memory") != std::string::npos;
}

std::string describe_out_of_memory(const std::exception& error) {
  constexpr std::string_view size_of_cpu = "you tried to allocate ", start_of_cuda = "CUDA out of memory";
  const auto line = dynamic_cast<const c10::Error*>(&error) == nullptr ? "" : first_line(error);
  if (const auto at = line.find(start_of_cuda); at != std::string::npos) return line.substr(at);
  std::uint64_t bytes = 0;
  if (const auto at = line.find(size_of_cpu); at != std::string::npos)
    if (std::from_chars(line.data() + at + size_of_cpu.size(), line.data() + line.size(), bytes).ec == std::errc())
      return human_bytes(bytes) + " more could not be allocated";
  return "the host has no more";
}

std::string first_line(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string message = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  return message.substr(0, message.find('\n'));
}

std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device, std::string& problem) {
  constexpr const char* name = "libmetaformer_cuda_graph.so";
  static void* const library = open_own_library(name);
  using Maker = DeviceGraph* (*)(int);
  const auto make =
      library == nullptr ? nullptr : reinterpret_cast<Maker>(dlsym(library, "metaformer_make_cuda_graph"));
  if (make != nullptr) return std::unique_ptr<DeviceGraph>(make(device.index()));
  const char* error = dlerror();
  problem = error != nullptr ? error : fmt::format("{} cannot be loaded", name);
  return nullptr;
}

}  // namespace metaformer
