// A config file with any content gives an Error or a config that loads again from its dump.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "config/loader.h"
#include "config/writer.h"

namespace {

using namespace metaformer;

void apply(const ConfigNode& source, ExperimentConfig& config) {
  Provenance provenance;
  apply_source(source, config, provenance);
}

void load_source(const std::filesystem::path& file) {
  ExperimentConfig config, again;
  apply(read_yaml_file(file), config);
  apply(parse_yaml(config_to_yaml(config), "dump"), again);
  if (config_to_json(again) != config_to_json(config)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto file =
      std::filesystem::temp_directory_path() / ("metaformer_fuzz_" + std::to_string(::getpid()) + ".yaml");
  static const struct Remover {
    ~Remover() { std::filesystem::remove(file); }
  } remover;
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  for (const bool of_run : {false, true}) {
    try {
      if (of_run)
        load_run_experiment(file);
      else
        load_source(file);
    } catch (const Error&) {
    }
  }
  return 0;
}
