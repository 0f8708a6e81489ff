#pragma once
// The models of the library `transformers` that are models of this program, too: the same function under other names.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "huggingface/config_file.h"
#include "huggingface/tensor_links.h"

namespace metaformer {

struct DescribedModel {
  TransformerConfig config;
  std::int64_t vocabulary = 0;
  std::int64_t key_value_heads = 0;  // divides config.heads; each of them serves several
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  virtual std::string_view model_type() const = 0;  // as in config.json

  // In front of the names of all tensors but the head's.
  virtual std::string prefix() const = 0;

  // Endings of the names of tensors that are no parameters, which some files have.
  virtual std::vector<std::string> buffers() const = 0;

  // Errors (exit code 3) name the key whose value this program's models cannot have.
  virtual DescribedModel read_config(ConfigFile& file) const = 0;

  // Of a model that `closest(model.config)` does not change.
  virtual nlohmann::ordered_json write_config(const DescribedModel& model) const = 0;

  // The config of this architecture that is closest to `given`: what differs keeps it from being exported.
  virtual TransformerConfig closest(const TransformerConfig& given) const = 0;

  // All tensors but the head, theirs without prefix. The token embeddings come first.
  virtual std::vector<TensorLink> links(const DescribedModel& model) const = 0;
};

// The model's tensors by the names of this program, from theirs, and back; `source` names what is given in errors (exit
// code 3): a tensor is missing, left over or of another shape.
NamedTensors import_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& theirs,
                            const std::string& source);
NamedTensors export_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& ours,
                            const std::string& source);

const Architecture& gpt2();
const Architecture& llama();
std::vector<const Architecture*> architectures();  // those above

// The name that the library gives an activation; "" for one that it does not have.
std::string name_of(const ActivationConfig& activation);

// Reads the activation from `key`. Errors: exit code 3.
ActivationConfig read_activation(ConfigFile& file, const char* key, const std::string& fallback);

}  // namespace metaformer
