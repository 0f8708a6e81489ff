#include <ATen/Version.h>
#include <torch/types.h>
#include <torch/version.h>

#include "base/digest.h"
#include "base/download.h"
#include "base/platform.h"
#include "cli/command_line.h"
#include "cuda/devices.h"
#include "cuda/metric_attention.h"
#include "ops/device.h"
#include "ops/linear.h"
#include "run/safetensors.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

// Each check makes two of the linked libraries work together.
const std::vector<std::pair<const char*, bool (*)()>> checks = {
    {"autograd",
     [] {
       auto x = torch::tensor({3.0}, torch::requires_grad());
       (x * x).sum().backward();
       return x.grad().item<double>() == 6.0;
     }},
    {"matrix products", products_are_right},
    {"bf16 products",
     [] {
       const auto a = torch::ones({32, 32}, torch::kBFloat16);
       return torch::equal(torch::mm(a, a).to(torch::kFloat), torch::full({32, 32}, 32.0));
     }},
    {"YAML", [] { return parse_yaml("a: [1, 2]", "check").find("a")->items.size() == 2; }},
    {"SHA-256", [] { return sha256("abc").starts_with("ba7816bf"); }},
    {"safetensors", [] {
       const auto tensor = torch::arange(6, torch::kFloat).view({2, 3});
       return torch::equal(from_safetensors(to_safetensors({{"a", tensor}}), "check").at(0).second, tensor);
     }}};

Json cuda_info() {
  const auto devices = cuda::find_devices();
  auto list = Json::array();
  for (const auto& device : devices.list)
    list.push_back({{"name", device.name},
                    {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
                    {"memory_bytes", device.memory},
                    {"usable", device.runs_our_kernels}});
  return {{"compiled", devices.compiled}, {"problem", devices.problem}, {"devices", list}};
}

Json collect() {
  Json info = {{"version", build_info().version},
               {"commit", build_info().commit},
               {"dirty", build_info().dirty},
               {"build", build_info().build_type},
               {"compiler", build_info().compiler},
               {"torch", TORCH_VERSION},
               {"curl", curl_version_text()},
               {"cpu", device_description(torch::kCPU)},
               {"cpu_capability", at::get_cpu_capability()},
               {"threads", at::get_num_threads()},
               {"mkl", at::hasMKL()},
               {"onednn", at::hasMKLDNN()},
               {"matrix_products", matrix_products()},
               {"cuda", cuda_info()},
               {"metric_kernels", cuda::metric_kernel_device() == cuda::MetricDevice::none ? "not in this build"
                                  : cuda::find_devices().list.empty()                      ? "compiled; there is no GPU"
                                                                                           : "compiled"}};
  for (const auto& folder : config_folders()) info["config_folders"].push_back(folder.string());
  const auto cache = cache_folder();
  info["corpus_cache"] = cache ? nlohmann::ordered_json(cache->string()) : nullptr;
  for (const auto& [name, works] : checks) info["checks"][name] = works();
  return info;
}

void print_table(const Json& info) {
  const auto text = [](const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
  for (const auto& [name, value] : info.items()) {
    if (!value.is_object()) {
      print_lines("{:<22} {}\n", name, text(value));
      continue;
    }
    print_lines("{}:\n", name);
    for (const auto& [inner, detail] : value.items()) print_lines("  {:<20} {}\n", inner, text(detail));
  }
  print("{:<22} source <(metaformer sweep-functions) in a bash script; docs/your_own_sweep.md\n", "sweeps");
}

void run_info(bool json) {
  const auto info = collect();
  json ? print_json(info) : print_table(info);
  for (const auto& [name, works] : info.at("checks").items())
    if (!works.get<bool>()) throw Error(ExitCode::failure, fmt::format("the check of {} failed", name));
}

}  // namespace

void add_info_command(CLI::App& app) {
  auto& command = *app.add_subcommand("info", "show versions and devices, and check the linked libraries");
  auto json = std::make_shared<bool>(false);
  add_json(command, *json);
  command.footer("Examples:\n  metaformer info\n  metaformer info --json");
  command.callback([json] { run_info(*json); });
}

}  // namespace metaformer
