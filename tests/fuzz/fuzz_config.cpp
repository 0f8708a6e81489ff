// A config file: whatever it holds, an Error or a config.

#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "config/decoder.h"
#include "config/loader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metaformer;
  static const auto file =
      std::filesystem::temp_directory_path() / ("metaformer_fuzz_" + std::to_string(::getpid()) + ".yaml");
  static const struct Remover {
    ~Remover() { std::filesystem::remove(file); }
  } remover;
  {
    std::FILE* stream = std::fopen(file.c_str(), "wb");
    if (stream == nullptr) return 0;
    std::fwrite(data, 1, size, stream);
    std::fclose(stream);
  }
  try {
    ExperimentConfig config;
    Provenance provenance;
    apply_layer(read_yaml_file(file), config, provenance);
  } catch (const Error&) {
  }
  return 0;
}
